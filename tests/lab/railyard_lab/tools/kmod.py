# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""modprobe, rmmod, lsmod and modinfo of kmod."""

from __future__ import annotations

import os
from typing import Any

from railyard_lab import modules
from railyard_lab import state as state_file
from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    return {"modprobe": _modprobe, "rmmod": _rmmod, "lsmod": _lsmod, "modinfo": _modinfo}[name](argv)


def kernel_release() -> str:
    return os.uname().release


def _modprobe(argv: list[str]) -> int:
    if argv in (["-V"], ["--version"]):
        print("kmod version 30\n+ZSTD +XZ -ZLIB +LIBCRYPTO -EXPERIMENTAL")
        return 0
    long = {"--remove": "r", "--dry-run": "n", "--show": "n", "--quiet": "q", "--all": "a", "--verbose": "v",
            "--use-blacklist": "b", "--show-depends": "D", "--first-time": "f", "--syslog": "s"}  # fmt: skip
    flags: set[str] = set()
    words = []
    for word in argv:
        if word in long:
            flags.add(long[word])
        elif word.startswith("--"):
            continue
        elif word.startswith("-") and len(word) > 1:
            flags |= set(word[1:])
        else:
            words.append(word)
    if not words:
        _common.error("modprobe: ERROR: missing parameters. See -h.")
        return 1
    names = words if flags & {"a", "r"} else words[:1]
    parameters = {} if flags & {"a", "r"} else dict(word.split("=", 1) for word in words[1:] if "=" in word)
    with state_file.change() as state:
        worst = 0
        for word in names:
            worst = max(worst, _one(state, word, parameters, flags))
    from railyard_lab import mount

    mount.device_nodes(state_file.load())
    return worst


def _one(state: dict[str, Any], word: str, parameters: dict[str, str], flags: set[str]) -> int:
    name = modules.canonical(word)
    quiet = "q" in flags

    def say(text: str) -> int:
        if not quiet:
            _common.error(text)
        return 1

    if "r" in flags:
        if name not in state["modules"]:
            return 0 if modules.available(state, name) else say(f"modprobe: FATAL: Module {word} not found.")
        if "n" in flags:
            return 0
        try:
            modules.unload(state, name)
        except modules.LoadError:
            return say(f"modprobe: FATAL: Module {name} is in use.")
        return 0
    if modules.builtin(name):
        return 0
    if not modules.available(state, name):
        return say(f"modprobe: FATAL: Module {word} not found in directory /lib/modules/{kernel_release()}")
    if "D" in flags:
        for needed in (*modules.KNOWN.get(name, (0, (), ""))[1][::-1], name):
            print(f"insmod {_path(state, needed)} ")
        return 0
    if "n" in flags:
        return 0
    if "b" in flags and modules.blacklisted(name):
        return 0
    try:
        modules.load(state, name)
    except modules.LoadError as error:
        return say(f"modprobe: ERROR: could not insert '{name}': {error}")
    if parameters:
        state["module_parameters"].setdefault(name, {}).update(parameters)
    return 0


def _rmmod(argv: list[str]) -> int:
    worst = 0
    with state_file.change() as state:
        for word in (word for word in argv if not word.startswith("-")):
            name = modules.canonical(word)
            try:
                modules.unload(state, name)
            except LookupError:
                _common.error(f"rmmod: ERROR: Module {name} is not currently loaded")
                worst = 1
            except modules.LoadError as error:
                _common.error(f"rmmod: ERROR: {error}")
                worst = 1
    return worst


def _lsmod(argv: list[str]) -> int:
    state = _common.snapshot()
    print("Module                  Size  Used by")
    for name in reversed(state["modules"]):
        users = modules.users(state, name)
        size = modules.KNOWN.get(name, (16384, (), ""))[0]
        print(f"{name:<19} {size:8d}  {len(users)}{' ' + ','.join(users) if users else ''}")
    return 0


def _path(state: dict[str, Any], name: str) -> str:
    folder = f"/lib/modules/{kernel_release()}"
    if name in modules.DRIVER_MODULES or name == "gdrdrv":
        return f"{folder}/updates/dkms/{name.replace('_', '-')}.ko"
    if state["stack"]["kind"] == "doca" and name.startswith(("mlx", "ib_", "rdma_", "iw_")):
        return f"{folder}/updates/dkms/{name}.ko"
    return f"{folder}/kernel/drivers/{name}.ko"


def _fields(state: dict[str, Any], name: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = [("filename", _path(state, name))]
    number = modules.version(state, name, loaded=False)
    if number:
        found.append(("version", number))
    if name in modules.DRIVER_MODULES:
        found.append(("license", "Dual MIT/GPL" if state["driver"]["flavour"] == "open" else "NVIDIA"))
        if name == "nvidia":
            found += [("firmware", f"nvidia/{number}/gsp_tu10x.bin"), ("firmware", f"nvidia/{number}/gsp_ga10x.bin")]
    else:
        found.append(("license", "Dual BSD/GPL"))
    found.append(("depends", ",".join(modules.KNOWN.get(name, (0, (), ""))[1])))
    found += [
        ("retpoline", "Y"),
        ("name", name),
        ("vermagic", f"{kernel_release()} SMP preempt mod_unload modversions "),
    ]
    return found


def _modinfo(argv: list[str]) -> int:
    wanted, names = None, []
    words = iter(argv)
    for word in words:
        if word in ("-F", "--field"):
            wanted = next(words, None)
        elif word == "-n":
            wanted = "filename"
        elif word == "-k":
            next(words, None)
        elif word.startswith("--field="):
            wanted = word.split("=", 1)[1]
        elif not word.startswith("-"):
            names.append(word)
    state = _common.snapshot()
    for word in names:
        name = modules.canonical(word)
        if not modules.available(state, name):
            _common.error(f"modinfo: ERROR: Module {word} not found.")
            return 1
        for key, value in _fields(state, name):
            if wanted is None:
                print(f"{key + ':':<16}{value}")
            elif wanted == key:
                print(value)
    return 0
