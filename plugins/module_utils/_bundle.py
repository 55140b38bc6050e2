# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Names under which a support bundle holds the answers of commands."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["bundle_name"]

_JSON_FLAGS = frozenset({"-j", "--json", "-J"})
_NOISE = frozenset({"--no-pager", "-D", "-d", "-n", "-4", "show", "--plain", "--no-legend"})


def bundle_name(argv: Sequence[str]) -> tuple[str, ...]:
    """File names under which a bundle may hold the answer of a command, the usual one first.

    Named after the command: its options without their dashes and its arguments, joined by `_`.
    The ending says what is inside.
    """
    tool = os.path.basename(argv[0])
    args = list(argv[1:])
    bases, endings = _special(tool, args)
    if not bases:
        bases, endings = _plain(tool, args)
    names: list[str] = []
    for base in bases:
        for spelling in (base, base.replace("-", "_")):
            names.extend(f"{spelling}.{ending}" for ending in endings)
    return tuple(dict.fromkeys(names))


def _plain(tool: str, args: list[str]) -> tuple[list[str], list[str]]:
    endings = ["json"] if any(arg in _JSON_FLAGS for arg in args) else ["txt", "log"]
    args = [arg for arg in args if arg not in _JSON_FLAGS]

    def joined(words: list[str]) -> str:
        return "_".join([tool, *(word.strip("/").replace("/", "_") for word in words)])

    words = [arg.lstrip("-").split("=", 1)[0] for arg in args]
    short = [word for arg, word in zip(args, words) if arg not in _NOISE and word != "dev"]
    return list(dict.fromkeys([joined(short), joined(words)])), endings


def _special(tool: str, args: list[str]) -> tuple[list[str], list[str]]:
    """Commands whose recorded name is not their plain spelling."""
    text = ["txt", "log"]
    if tool == "journalctl":
        units = [args[i + 1] for i, arg in enumerate(args[:-1]) if arg in ("-u", "--unit")]
        if units:
            return [f"journalctl_{units[0]}", f"journalctl_{units[0].rsplit('.', 1)[0]}"], text
        return (["journalctl_k"], text) if "-k" in args else ([], [])
    if tool == "systemctl":
        verb = args[0] if args else ""
        values = {i + 1 for i, arg in enumerate(args) if arg in ("-p", "--property")}
        units = [arg for i, arg in enumerate(args) if i and i not in values and not arg.startswith("-")]
        if len(units) == 1:
            return [f"systemctl_{verb}_{units[0]}", f"systemctl_{verb}_{units[0].rsplit('.', 1)[0]}"], text
        return [f"systemctl_{verb}"], text
    if tool == "nvidia-smi":
        for arg in args:
            if arg.startswith("--query-"):
                return ["nvidia-smi_" + arg[2:].split("=", 1)[0].replace("-", "_")], ["csv", "txt"]
        if "-q" in args and "-x" in args:
            return ["nvidia-smi_q", "nvidia-smi_q_x", "nvidia-smi_x"], ["xml"]
    if tool in ("mlxconfig", "mstconfig") and "-d" in args[:-1]:
        device = args[args.index("-d") + 1]
        endings = ["json"] if any(arg in _JSON_FLAGS for arg in args) else ["txt"]
        return [f"mlxconfig_{device}", f"mlxconfig_{device}_q"], endings
    if tool == "mlnx_qos":
        devices = [args[i + 1] for i, arg in enumerate(args[:-1]) if arg == "-i"]
        return [f"mlnx_qos_{device}" for device in devices] or ["mlnx_qos"], ["txt"]
    if tool == "systemd-detect-virt" and not args:
        return ["systemd_detect_virt"], text
    if tool == "dmesg":
        return ["dmesg"], text
    if tool == "firewall-cmd":
        return [tool, *_plain(tool, args)[0]], text
    if tool == "ibv_devinfo":  # -v tells the same and more
        return [*_plain(tool, args)[0], tool], text
    return [], []
