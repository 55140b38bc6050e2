# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of `playbooks/lab.yml`. Each prints one JSON object with `changed`; errors are one line and exit code 1."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import cables, content, daemon, engine, hardware, layout, lock, prune, room, seed

# What a person can act on; anything else is a fault of the program and shows its traceback.
ERRORS = (
    cables.CableError,
    engine.EngineError,
    hardware.HardwareError,
    layout.LayoutError,
    lock.LockError,
    room.RoomError,
    subprocess.SubprocessError,
    OSError,
)


def routes_of_this_machine(own_bridge: str) -> list[str]:
    """Destinations that are routed already, those of this rack's own bridge excepted."""
    found = []
    for route in json.loads(cables.ip(["-json", "route", "show", "table", "all"])):
        if route["dst"] != "default" and route.get("dev") != own_bridge and route.get("type", "unicast") == "unicast":
            found.append(route["dst"])
    return found


def read_rack(directory: Path) -> dict[str, Any]:
    path = directory / "rack.json"
    return json.loads(path.read_text()) if path.exists() else {}


def cmd_detect(options: argparse.Namespace) -> dict[str, Any]:
    return {"changed": False, **engine.detect(options.engine)}


def cmd_lock(options: argparse.Namespace) -> dict[str, Any]:
    lock.take(options.path)
    return {"changed": False}


def cmd_hash(options: argparse.Namespace) -> dict[str, Any]:
    return {"changed": False, "hash": content.content_hash(options.paths, options.extra)}


def cmd_probe(options: argparse.Namespace) -> dict[str, Any]:
    """Find the engine's concession once per engine version and machine limits; keep it in `--record`."""
    key = {"engine": options.engine, "version": options.version, "limits": engine.limits()}
    record = options.record
    if record.exists():
        known = json.loads(record.read_text())
        conf_kept = options.engine != "podman" or not engine.containers_conf(known) or options.conf.exists()
        if known["key"] == key and conf_kept:
            return {"changed": False, **known}
    if options.engine == "podman":
        options.conf.unlink(missing_ok=True)
    found = {"key": key, **engine.probe(options.engine, options.image)}
    if options.engine == "podman" and engine.containers_conf(found):
        engine.write_if_changed(options.conf, engine.containers_conf(found))
    engine.write_if_changed(record, json.dumps(found, indent=2) + "\n")
    return {"changed": True, **found}


def cmd_describe(options: argparse.Namespace) -> dict[str, Any]:
    """Write rack.json, the keys and the nodes' seeds."""
    directory = options.dir
    before = read_rack(directory)
    subnet = options.subnet or before.get("subnet", "")
    bridge = f"{layout.tag(options.name)}-mgmt"
    subnet = layout.choose_subnet(routes_of_this_machine(bridge), subnet)
    rack = layout.build(
        name=options.name,
        count=options.nodes,
        profile=options.profile,
        subnet=subnet,
        engine=options.engine,
        image=options.image,
        port=options.port,
        nics_of=lambda host: hardware.nics_of(options.profile, host),
    )
    changed = engine.write_if_changed(directory / "rack.json", json.dumps(rack, indent=2) + "\n")
    www = directory / "www"
    if options.repository and (not www.is_symlink() or www.readlink() != options.repository / "www"):
        if www.is_symlink():
            www.unlink()
        elif www.is_dir():
            www.rmdir()
        www.symlink_to(options.repository / "www")
        changed = True
    changed |= seed.write(rack, directory, options.repository)
    return {"changed": changed, "rack": rack}


def cmd_room(options: argparse.Namespace) -> dict[str, Any]:
    raised = room.make(len(read_rack(options.dir).get("nodes", [])))
    return {"changed": bool(raised), "raised": raised}


def cmd_network(options: argparse.Namespace) -> dict[str, Any]:
    rack = read_rack(options.dir)
    if not rack:
        return {"changed": False}
    present = cables.present(rack)
    if options.action == "up":
        if not present:
            cables.build(rack)
        return {"changed": not present}
    cables.remove(rack)
    return {"changed": present}


def cmd_daemon(options: argparse.Namespace) -> dict[str, Any]:
    if options.action == "run":
        daemon.run(options.dir)
    if options.action == "stop":
        return {"changed": daemon.stop(options.dir)}
    return {"changed": daemon.start(options.dir, {"PYTHONDONTWRITEBYTECODE": "1"})}


def cmd_containers(options: argparse.Namespace) -> dict[str, Any]:
    """Compare the engine's containers with rack.json: which to remove, which to start, which are right."""
    rack = read_rack(options.dir)
    present = engine.containers_of(options.engine, options.name)
    wanted = {node["container"]: node for node in rack.get("nodes", [])}
    right = [c["name"] for c in present if c["name"] in wanted and c["spec"] == wanted[c["name"]]["spec"]]
    running = {c["name"] for c in present if c["running"]}
    return {
        "changed": False,
        "present": [c["name"] for c in present],
        "running": sorted(running),
        "stale": [c["name"] for c in present if c["name"] not in right],
        "missing": [node["name"] for name, node in wanted.items() if name not in running or name not in right],
    }


def cmd_prune(options: argparse.Namespace) -> dict[str, Any]:
    removed = prune.prune(options.cache, options.engine)
    return {"changed": bool(removed), "removed": removed}


def cmd_cable(options: argparse.Namespace) -> dict[str, Any]:
    """Pull a node's cables out of the switch, or plug them in again; it holds over the node's next boots."""
    rack = read_rack(options.dir)
    up = options.action == "plug"
    changed = cables.switch_carrier(rack, options.node, options.nics, up=up)
    path = options.dir / "nodes" / options.node / daemon.UNPLUGGED
    known = set(json.loads(path.read_text())) if path.exists() else set()
    wanted = known - set(options.nics) if up else known | set(options.nics)
    if wanted != known:
        path.write_text(json.dumps(sorted(wanted)) + "\n")
    return {"changed": changed or wanted != known}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab_rack", description=__doc__)
    verbs = top.add_subparsers(dest="verb", required=True)

    one = verbs.add_parser("detect", help="which container engine answers")
    one.add_argument("--engine", default="")
    one.set_defaults(call=cmd_detect)

    one = verbs.add_parser("lock", help="keep other runs of lab.yml waiting until this one ends")
    one.add_argument("--path", required=True, type=Path)
    one.set_defaults(call=cmd_lock)

    one = verbs.add_parser("hash", help="content hash of files and trees")
    one.add_argument("paths", nargs="+", type=lambda text: Path(text).resolve())
    one.add_argument("--extra", action="append", default=[])
    one.set_defaults(call=cmd_hash)

    one = verbs.add_parser("probe", help="what the engine needs on this machine")
    one.add_argument("--engine", required=True)
    one.add_argument("--version", required=True)
    one.add_argument("--image", required=True)
    one.add_argument("--conf", required=True, type=Path)
    one.add_argument("--record", required=True, type=Path)
    one.set_defaults(call=cmd_probe)

    one = verbs.add_parser("describe", help="write rack.json and the nodes' seeds")
    one.add_argument("--dir", required=True, type=Path)
    one.add_argument("--name", default=layout.DEFAULT_NAME)
    one.add_argument("--nodes", type=int, default=4)
    one.add_argument("--profile", required=True)
    one.add_argument("--subnet", default="")
    one.add_argument("--engine", required=True)
    one.add_argument("--image", required=True)
    one.add_argument("--port", type=int, default=8080)
    one.add_argument("--repository", type=Path, default=None)
    one.set_defaults(call=cmd_describe)

    one = verbs.add_parser("room", help="kernel settings that all nodes draw on")
    one.add_argument("--dir", required=True, type=Path)
    one.set_defaults(call=cmd_room)

    one = verbs.add_parser("network", help="switches")
    one.add_argument("action", choices=("up", "down"))
    one.add_argument("--dir", required=True, type=Path)
    one.set_defaults(call=cmd_network)

    one = verbs.add_parser("daemon", help="package server and cabling")
    one.add_argument("action", choices=("start", "stop", "run"))
    one.add_argument("--dir", required=True, type=Path)
    one.set_defaults(call=cmd_daemon)

    one = verbs.add_parser("containers", help="the engine's containers against rack.json")
    one.add_argument("--dir", required=True, type=Path)
    one.add_argument("--engine", required=True)
    one.add_argument("--name", required=True)
    one.set_defaults(call=cmd_containers)

    one = verbs.add_parser("prune", help="forget images and repositories that no rack uses")
    one.add_argument("--cache", required=True, type=Path)
    one.add_argument("--engine", required=True)
    one.set_defaults(call=cmd_prune)

    one = verbs.add_parser("cable", help="unplug or plug in")
    one.add_argument("action", choices=("plug", "unplug"))
    one.add_argument("--dir", required=True, type=Path)
    one.add_argument("--node", required=True)
    one.add_argument("nics", nargs="+")
    one.set_defaults(call=cmd_cable)
    return top


def main() -> int:
    options = parser().parse_args()
    os.umask(0o022)
    try:
        print(json.dumps(options.call(options)))
    except ERRORS as error:
        print(f"{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
