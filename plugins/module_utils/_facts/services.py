# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""systemd units: what runs, what starts at boot, with which main process."""

from __future__ import annotations

from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["COMMANDS", "UNITS", "collect", "properties"]

#: Units that the plan, a role or a rule asks about.
UNITS = (
    "ssh", "sshd", "slurmd", "containerd", "docker", "kubelet", "munge",
    "nvidia-fabricmanager", "nvidia-persistenced", "nvidia-imex", "nvidia-dcgm", "nvlsm", "opensm", "gdrcopy",
    "openibd", "rdma-ndd", "ibacm", "srp_daemon", "mst",
    "irqbalance", "tuned", "lldpad", "firewalld", "ufw", "nftables", "iptables", "netfilter-persistent",
    "NetworkManager", "systemd-networkd", "networking", "unattended-upgrades", "apt-daily-upgrade.timer",
    "gpu-fabric-nic", "gpu-fabric-acs",
)  # fmt: skip
_PROPERTIES = (
    "Id,Names,LoadState,ActiveState,SubState,UnitFileState,MainPID,NRestarts,Result,"
    "LimitMEMLOCK,LimitMEMLOCKSoft,LimitNOFILE,LimitNOFILESoft,NeedDaemonReload"
)
_SHOW = ("systemctl", "show", f"--property={_PROPERTIES}", *UNITS)
COMMANDS = (_SHOW,)


def collect(source: Source) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, told in properties(source).items():
        state = told.get("ActiveState")
        entry: dict[str, Any] = {}
        if state is not None:
            entry["active"] = state in ("active", "reloading")
            entry["state"] = state
        unit_file = told.get("UnitFileState")
        if unit_file:
            entry["enabled"] = unit_file in ("enabled", "enabled-runtime", "alias", "static", "indirect", "generated")
            entry["unit_file_state"] = unit_file
        for key, label in (("sub_state", "SubState"), ("result", "Result")):
            if told.get(label):
                entry[key] = told[label]
        for key, label in (("pid", "MainPID"), ("restarts", "NRestarts")):
            if told.get(label, "").isdecimal() and told[label] != "0":
                entry[key] = int(told[label])
        if told.get("NeedDaemonReload") == "yes":
            entry["needs_daemon_reload"] = True
        found[name] = entry
    return found


def properties(source: Source) -> dict[str, dict[str, str]]:
    """Properties per unit that is installed, by the name asked for (`.service` left out)."""
    output = source.run(_SHOW)
    found: dict[str, dict[str, str]] = {}
    if output is not None and output.stdout:
        blocks = [_block(block) for block in output.stdout.split("\n\n")]
        for block in blocks:
            if block.get("LoadState") not in ("loaded", "masked"):
                continue
            names = [name for name in {block.get("Id", ""), *block.get("Names", "").split()} if name]
            for name in names:
                short = name[: -len(".service")] if name.endswith(".service") else name
                if short in UNITS:
                    found[short] = block
        return found
    # A bundle holds one file per unit, whichever units somebody asked about; an answer of `is-active` is one word.
    for unit in dict.fromkeys([*UNITS, *_recorded(source)]):
        shown = source.run(("systemctl", "show", _full(unit))) if not source.live else None
        if shown is not None:
            block = _block(shown.stdout)
            if block.get("LoadState", "loaded") == "loaded" and block:
                found[unit] = block
        asked = source.run(("systemctl", "is-active", _full(unit))) if not source.live else None
        words = asked.stdout.split() if asked is not None else []
        if words:
            found.setdefault(unit, {}).setdefault("ActiveState", words[-1])
    return found


def _full(unit: str) -> str:
    return unit if "." in unit else f"{unit}.service"


def _recorded(source: Source) -> list[str]:
    found = []
    for verb in ("show", "is-active"):
        prefix = f"systemctl_{verb}_"
        for name in source.recorded(prefix):
            unit = name[len(prefix) :].rsplit(".", 1)[0]
            unit = unit[: -len(".service")] if unit.endswith(".service") else unit
            # `systemctl show -p PROPERTY` is about the manager, not about a unit.
            if unit and not unit.startswith(("property", "p_", "-")):
                found.append(unit)
    return found


def _block(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}
