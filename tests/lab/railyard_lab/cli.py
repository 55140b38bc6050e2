# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command line of a lab node's hardware; README.md describes every command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from railyard_lab import packages
from railyard_lab import state as state_file


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="railyard_lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    commands.add_parser("profiles")
    netdevs = commands.add_parser("netdevs")
    netdevs.add_argument("--profile", required=True)
    netdevs.add_argument("--host", required=True)

    node = commands.add_parser("node").add_subparsers(dest="action", required=True)
    for action in ("up", "reset"):
        sub = node.add_parser(action)
        sub.add_argument("--profile", required=action == "reset")
        sub.add_argument("--host")
    node.add_parser("watch")

    commands.add_parser("sync")
    commands.add_parser("modules-load")
    show = commands.add_parser("show")
    show.add_argument("path", nargs="?", default="")
    put = commands.add_parser("set")
    put.add_argument("path")
    put.add_argument("value")

    driver = commands.add_parser("driver").add_subparsers(dest="action", required=True)
    install = driver.add_parser("install")
    install.add_argument("--version", required=True)
    install.add_argument("--flavour", choices=("open", "proprietary"), default="open")
    install.add_argument("--no-library", action="store_true")
    library = driver.add_parser("library")
    library.add_argument("--version", required=True)
    driver.add_parser("remove")

    for name in ("fabricmanager", "cuda", "nccl"):
        package = commands.add_parser(name).add_subparsers(dest="action", required=True)
        package.add_parser("install").add_argument("--version", required=True)
        package.add_parser("remove")

    stack = commands.add_parser("stack")
    stack.add_argument("kind", choices=("inbox", "doca"))
    stack.add_argument("--version", default="25.10-1.7.1")

    dkms = commands.add_parser("dkms")
    dkms.add_argument("action", choices=("add", "built", "installed", "remove"))
    dkms.add_argument("module")
    dkms.add_argument("version")

    tool = commands.add_parser("tool").add_subparsers(dest="action", required=True)
    tool.add_parser("list")
    tool.add_parser("refresh")
    for action in ("enable", "disable"):
        tool.add_parser(action).add_argument("names", nargs="+")

    tools = commands.add_parser("install-tools")
    tools.add_argument("--dir", type=Path, default=Path("/usr/local/sbin"))
    tools.add_argument("--all", action="store_true")
    tools.add_argument("names", nargs="*")

    commands.add_parser("faults")
    fault = commands.add_parser("fault")
    fault.add_argument("name", help="name of a fault, `list` or `clear`")
    fault.add_argument("which", nargs="?", help="with `clear`: only this fault")
    fault.add_argument("--device")
    fault.add_argument("--value")
    return parser


def main(argv: list[str]) -> int:
    given = _parser().parse_args(argv)
    if os.environ.get(packages.INSIDE_FAULT):
        # A package that a fault installs calls its hooks; the fault holds the state and writes it itself.
        return 0
    handler = globals()["_" + given.command.replace("-", "_")]
    return handler(given) or 0


def _profiles(given: argparse.Namespace) -> None:
    from railyard_lab import profile

    print("\n".join(profile.names()))


def netdevs(profile_name: str, host: str) -> list[dict[str, Any]]:
    """The NIC ports of a host of this profile: what the rack must plug in."""
    from railyard_lab import profile

    state = profile.unfold(profile_name, host)
    return [
        {
            "name": nic["netdev"],
            "mac": nic["mac"],
            "role": nic["role"],
            "rail": nic["rail"],
            "rate_gbps": nic["rate_gbps"],
            "link_layer": nic["link_layer"],
            "plugged": nic["cable"] and not nic["sw_mng"],
            "pci": nic["pci"],
            "rdma": nic["rdma"],
        }
        for nic in state["nics"]
        if nic["netdev"]
    ]


def _netdevs(given: argparse.Namespace) -> None:
    print(json.dumps(netdevs(given.profile, given.host), indent=1))


def _node(given: argparse.Namespace) -> None:
    from railyard_lab import node

    if given.action == "up":
        node.up(given.profile, given.host)
    elif given.action == "reset":
        node.reset(given.profile, given.host)
    else:
        node.watch()


def _sync(given: argparse.Namespace) -> None:
    from railyard_lab import node

    node.sync()


def _modules_load(given: argparse.Namespace) -> int:
    from railyard_lab import modules

    with state_file.change() as state:
        failed = modules.load_configured(state)
    for name in failed:
        print(f"Failed to find module '{name}'", file=sys.stderr)
    return 1 if failed else 0


def _walk(state: Any, path: str) -> tuple[Any, Any]:
    """The container and the key of the last part of a dotted path."""
    holder, key = None, None
    value = state
    for part in filter(None, path.split(".")):
        holder, key = value, int(part) if isinstance(value, list) else part
        value = value[key]
    return holder, key


def _show(given: argparse.Namespace) -> int:
    state = state_file.load()
    try:
        holder, key = _walk(state, given.path)
    except (KeyError, IndexError, ValueError, TypeError):
        print(f"railyard_lab: the state has no {given.path}", file=sys.stderr)
        return 1
    print(json.dumps(state if holder is None else holder[key], indent=1))
    return 0


def _set(given: argparse.Namespace) -> None:
    with state_file.change() as state:
        holder, key = _walk(state, given.path)
        holder[key] = json.loads(given.value)


def _without_state() -> bool:
    if state_file.exists():
        return False
    print("railyard_lab: no state on this host: nothing done", file=sys.stderr)
    return True


def _refresh() -> None:
    from railyard_lab import mount, toolbox

    toolbox.refresh(quiet=True)
    mount.device_nodes(state_file.load())


def _driver(given: argparse.Namespace) -> None:
    if _without_state():
        return
    with state_file.change() as state:
        if given.action == "install":
            packages.install_driver(state, given.version, given.flavour, not given.no_library)
        elif given.action == "library":
            state["driver"]["library"] = given.version
        else:
            packages.remove_driver(state)
    _refresh()


def _fabricmanager(given: argparse.Namespace) -> None:
    if _without_state():
        return
    with state_file.change() as state:
        state["fabric_manager"]["version"] = given.version if given.action == "install" else None
    _refresh()


def _simple(given: argparse.Namespace, key: str) -> None:
    if _without_state():
        return
    with state_file.change() as state:
        state[key] = given.version if given.action == "install" else None
    _refresh()


def _cuda(given: argparse.Namespace) -> None:
    _simple(given, "cuda")


def _nccl(given: argparse.Namespace) -> None:
    _simple(given, "nccl")


def _stack(given: argparse.Namespace) -> None:
    if _without_state():
        return
    with state_file.change() as state:
        packages.set_stack(state, given.kind, given.version)
    _refresh()


def _dkms(given: argparse.Namespace) -> None:
    if _without_state():
        return
    with state_file.change() as state:
        packages.set_dkms(state, given.action, given.module, given.version)
    _refresh()


def _tool(given: argparse.Namespace) -> int:
    from railyard_lab import toolbox

    if _without_state():
        return 0
    if given.action == "refresh":
        toolbox.refresh()
        return 0
    if given.action == "list":
        names = toolbox.wanted(state_file.load())
        for name, tool in toolbox.TOOLS.items():
            print(f"{name}\t{tool.group}\t{'enabled' if name in names else 'disabled'}")
        return 0
    unknown = [name for name in given.names if name not in toolbox.TOOLS]
    if unknown:
        print(f"railyard_lab: no stand-in for {', '.join(unknown)}", file=sys.stderr)
        return 1
    with state_file.change() as state:
        chosen = set(state["enabled_tools"])
        chosen = chosen | set(given.names) if given.action == "enable" else chosen - set(given.names)
        state["enabled_tools"] = sorted(chosen)
    toolbox.refresh(quiet=True)
    return 0


def _install_tools(given: argparse.Namespace) -> int:
    from railyard_lab import toolbox

    names = list(toolbox.TOOLS) if given.all else given.names
    unknown = [name for name in names if name not in toolbox.TOOLS]
    if unknown:
        print(f"railyard_lab: no stand-in for {', '.join(unknown)}", file=sys.stderr)
        return 1
    for name in names:
        toolbox.write(given.dir, name)
    return 0


def _faults(given: argparse.Namespace) -> None:
    from railyard_lab import faults

    print(json.dumps({name: summary for name, (summary, _) in faults.FAULTS.items()}, indent=1))


def _fault(given: argparse.Namespace) -> int:
    from railyard_lab import faults

    try:
        if given.name == "list":
            answer: Any = faults.describe(state_file.load())
        elif given.name == "clear":
            answer = faults.clear(given.which)
        else:
            answer = faults.inject(given.name, given.device, given.value)
    except faults.Refused as error:
        print(f"railyard_lab: {error}", file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=1))
    return 0
