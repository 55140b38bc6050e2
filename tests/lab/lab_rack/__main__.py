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

from . import cables, claim, content, daemon, engine, hardware, layout, lock, prune, remains, room, seed

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


def cmd_claim(options: argparse.Namespace) -> dict[str, Any]:
    """Take a name and a network of this machine for the rack."""
    layout.node_names(options.nodes)
    before = remains.described(options.dir)
    taken = claim.take(options.dir, options.name, options.subnet, before, engine.environment(options.dir))
    return taken._asdict()


def cmd_describe(options: argparse.Namespace) -> dict[str, Any]:
    """Write rack.json, the keys and the nodes' seeds."""
    directory = options.dir
    rack = layout.build(
        name=options.name,
        prefix=options.prefix,
        count=options.nodes,
        profile=options.profile,
        subnet=options.subnet,
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
    raised = room.make(len(remains.described(options.dir).get("nodes", [])))
    return {"changed": bool(raised), "raised": raised}


def cmd_switches(options: argparse.Namespace) -> dict[str, Any]:
    rack = remains.described(options.dir)
    present = cables.present(rack)
    if not present:
        cables.build(rack)
    return {"changed": not present}


def cmd_down(options: argparse.Namespace) -> dict[str, Any]:
    """Take down one rack, or with `--cache` every rack and every virtual machine that the checkout has started."""
    if options.dir:
        belongs, directories = remains.at(options.dir), [options.dir]
        environment = engine.environment(options.dir)
    else:
        lab = options.cache / "lab"
        belongs, directories = remains.below(lab), [lab, *sorted(lab.glob("racks/*"))]
        environment = engine.environment(lab)
        lock.take(lab / "lock")
    gone = remains.take_down(belongs, directories, environment)
    said = [f"The rack {name} is down: {', '.join(parts)}." for name, parts in gone.items()]
    if options.cache:
        machines = remains.machines(remains.below(options.cache / "vm"))
        remains.end(machines)
        said += [f"The virtual machine of process {pid} is off." for pid in machines]
    changed, said = bool(said), said or ["Nothing was up."]
    # For a person who runs it by hand, through make; a playbook shows the answer's own.
    print("\n".join(said), file=sys.stderr)
    return {"changed": changed, "said": said}


def cmd_daemon(options: argparse.Namespace) -> dict[str, Any]:
    if options.action == "run":
        daemon.run(options.dir)
    return {"changed": daemon.start(options.dir, {"PYTHONDONTWRITEBYTECODE": "1"})}


def cmd_containers(options: argparse.Namespace) -> dict[str, Any]:
    """Compare the engine's containers with rack.json: which to remove, which to start, which are right."""
    rack = remains.described(options.dir)
    # A rack that is not described has no containers: the engine would answer with those of every rack.
    present = engine.containers_of(options.engine, rack.get("prefix", rack["name"])) if rack else []
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


def cmd_remove(options: argparse.Namespace) -> dict[str, Any]:
    engine.remove(options.engine, options.containers)
    return {"changed": True}


def cmd_prune(options: argparse.Namespace) -> dict[str, Any]:
    removed = prune.prune(options.cache, options.engine)
    return {"changed": bool(removed), "removed": removed}


def cmd_cable(options: argparse.Namespace) -> dict[str, Any]:
    """Pull a node's cables out of the switch, or plug them in again; it holds over the node's next boots."""
    rack = remains.described(options.dir)
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

    one = verbs.add_parser("claim", help="take a name and a network of this machine")
    one.add_argument("--dir", required=True, type=Path)
    one.add_argument("--name", default=layout.DEFAULT_NAME)
    one.add_argument("--nodes", type=int, default=4)
    one.add_argument("--subnet", default="")
    one.set_defaults(call=cmd_claim)

    one = verbs.add_parser("describe", help="write rack.json and the nodes' seeds")
    one.add_argument("--dir", required=True, type=Path)
    one.add_argument("--name", default=layout.DEFAULT_NAME)
    one.add_argument("--prefix", default="", help="the rack's name on this machine, as `claim` says")
    one.add_argument("--nodes", type=int, default=4)
    one.add_argument("--profile", required=True)
    one.add_argument("--subnet", required=True)
    one.add_argument("--engine", required=True)
    one.add_argument("--image", required=True)
    one.add_argument("--port", type=int, default=8080)
    one.add_argument("--repository", type=Path, default=None)
    one.set_defaults(call=cmd_describe)

    one = verbs.add_parser("room", help="kernel settings that all nodes draw on")
    one.add_argument("--dir", required=True, type=Path)
    one.set_defaults(call=cmd_room)

    one = verbs.add_parser("switches", help="stand the fabric's switches up")
    one.add_argument("--dir", required=True, type=Path)
    one.set_defaults(call=cmd_switches)

    one = verbs.add_parser("down", help="take down a rack, or all that a checkout has started")
    which = one.add_mutually_exclusive_group(required=True)
    which.add_argument("--dir", type=Path, help="the rack's directory")
    which.add_argument("--cache", type=Path, help="the checkout's .cache")
    one.set_defaults(call=cmd_down)

    one = verbs.add_parser("daemon", help="package server and cabling")
    one.add_argument("action", choices=("start", "run"))
    one.add_argument("--dir", required=True, type=Path)
    one.set_defaults(call=cmd_daemon)

    one = verbs.add_parser("containers", help="the engine's containers against rack.json")
    one.add_argument("--dir", required=True, type=Path)
    one.add_argument("--engine", required=True)
    one.set_defaults(call=cmd_containers)

    one = verbs.add_parser("remove", help="remove containers")
    one.add_argument("--engine", required=True)
    one.add_argument("containers", nargs="+")
    one.set_defaults(call=cmd_remove)

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
