# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""A change of the interface through which the host is managed, which the host takes back unless it is confirmed.

Two transient timers of systemd do it, so that neither depends on the connection: the first makes the change a moment
after the module has answered, the second takes it back. Until the confirmation nothing is written to disk, so that a
reboot takes the change back, too.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
import sys
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, read_text, remove, write_atomic
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.delta import (
    family_flag,
    route_command,
    rule_command,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import MAIN_TABLE, Link, LinkError, Route
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.present import (
    UNICAST,
    load,
    present_links,
    table_number,
)

APPLY_UNIT = "gpu-fabric-links-apply"
RESTORE_UNIT = "gpu-fabric-links-rollback"
DIRECTORY = "/run/gpu_fabric"
RECORD = f"{DIRECTORY}/links-pending.json"
DONE = f"{DIRECTORY}/links-rolled-back"
# The module's answer has to be on its way before the connection may break.
GRACE_S = 3
TOO_LATE = (
    "The change of the management interface was not confirmed in time, and the host took it back;"
    " look at the addresses and the gateway that it was given, or allow more time with rdma_rollback_s"
)
# Of a route, as rtnetlink(7) numbers who made it.
KERNEL, ROUTER = "2", "9"
# Runs by itself, whatever happens to the collection's files meanwhile.
PROGRAM = """\
import json, os, subprocess, sys
with open(sys.argv[1], encoding="utf-8") as stream:
    plan = json.load(stream)
failed = []
for path, content in plan["files"].items() if sys.argv[2] == "restore" else ():
    try:
        if content is not None:
            with open(path, "w", encoding="utf-8", errors="surrogateescape") as stream:
                stream.write(content)
        elif os.path.exists(path):
            os.unlink(path)
    except OSError as exc:
        failed.append(str(exc))
for argv in plan[sys.argv[2]]:
    # What is to be deleted may be gone already.
    if subprocess.run(argv, check=False).returncode and "del" not in argv[2:4]:
        failed.append(argv)
if sys.argv[2] == "restore":
    with open(sys.argv[3], "w", encoding="utf-8") as stream:
        json.dump(failed, stream)
sys.exit(bool(failed))
"""


def restore_commands(netdev: str, answers: t.Mapping[str, str], wanted: Link) -> list[list[str]]:
    """Return what makes an interface again as ``answers`` (to present.QUERIES) show it, after a change to ``wanted``.

    It clears the interface first: what a change left there is not known when it is taken back. Routes that it brought
    do not go with their addresses, and would win over those that a DHCP server gave. Of addresses with a lifetime it
    gives back those that the change makes permanent.
    """
    present = present_links(answers, {netdev: wanted.rules}).get(netdev, Link(netdev))
    commands = [rule_command("del", rule) for rule in sorted(wanted.rules - present.rules)]
    commands += [route_command("del", route, netdev) for route in sorted(wanted.routes, key=Route.order)]
    connected = []
    for entry in load(answers["addresses"], "addresses"):
        if entry["ifname"] != netdev:
            continue
        commands += [
            ["ip", "link", "set", "dev", netdev, "mtu", str(entry["mtu"])],
            # Addresses that a router or a DHCP server gave have a lifetime and are nobody's setting.
            ["ip", "address", "flush", "dev", netdev, "scope", "global", "permanent"],
            ["ip", "link", "set", "dev", netdev, "up" if "UP" in entry.get("flags", ()) else "down"],
        ]
        for item in entry.get("addr_info", ()):
            if item.get("scope") == "link" or "local" not in item:
                continue
            address = f"{item['local']}/{item['prefixlen']}"
            if item.get("dynamic") and address not in wanted.addresses:
                continue
            connected.append(str(ipaddress.ip_interface(address).network))
            words = [address]
            if "address" in item:
                words = [item["local"], "peer", f"{item['address']}/{item['prefixlen']}"]
            words += ["broadcast", item["broadcast"]] if "broadcast" in item else []
            words += ["nodad"] if ":" in address else []
            if item.get("dynamic"):
                words += ["valid_lft", str(item["valid_life_time"]), "preferred_lft", str(item["preferred_life_time"])]
            commands.append(["ip", "address", "replace", *words, "dev", netdev])
    for family, query in ((4, "routes4"), (6, "routes6")):
        found = [entry for entry in load(answers[query], query) if entry.get("dev") == netdev]
        # Gateways are reached over routes on the link, so these come first.
        for entry in sorted(found, key=lambda item: "gateway" in item or "via" in item):
            # The kernel brings its own back with the addresses.
            if entry.get("protocol") in (KERNEL, ROUTER) or entry.get("type") not in UNICAST:
                continue
            if (
                not {"gateway", "via"} & entry.keys()
                and entry["dst"] in connected
                and table_number(entry.get("table")) == MAIN_TABLE
            ):
                continue
            commands.append(found_again(family, entry))
    return commands


def found_again(family: int, entry: t.Mapping[str, t.Any]) -> list[str]:
    """Return what sets a route as the kernel showed it."""
    command = ["ip", family_flag(family), "route", "replace", str(entry["dst"])]
    if "via" in entry:  # a gateway of the other family
        command += ["via", entry["via"]["family"], entry["via"]["host"]]
    for word, key in (
        ("via", "gateway"), ("dev", "dev"), ("src", "prefsrc"), ("metric", "metric"), ("proto", "protocol"),
        ("scope", "scope"), ("table", "table"),
    ):  # fmt: skip
        if key in entry and not (word == "scope" and family == 6):
            command += [word, str(entry[key])]
    return command + (["onlink"] if "onlink" in entry.get("flags", ()) else [])


class Pending:
    """The one change of this host that waits for its confirmation."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli

    def load(self) -> dict[str, t.Any] | None:
        """The change that waits, with what it wants and would restore; None where none does."""
        text = read_text(RECORD)
        return json.loads(text) if text and read_text(DONE) is None else None

    def rolled_back(self) -> bool:
        return read_text(DONE) is not None

    def _too_late(self) -> LinkError:
        failed = json.loads(read_text(DONE) or "[]")
        shown = "; ".join(item if isinstance(item, str) else shlex.join(item) for item in failed)
        return LinkError(f"{TOO_LATE}. This did not succeed on the way: {shown}" if failed else TOO_LATE)

    def refuse(self) -> t.NoReturn:
        """Say why there is nothing to confirm."""
        if self.rolled_back():
            raise self._too_late()
        raise LinkError("There is no change of the management interface to confirm; run without confirm first")

    def refuse_waiting(self) -> None:
        """Say that the host is about to take back what an earlier run began and did not confirm to the end.

        That run was cut off. What it changed is on its way out, so it is neither to be built upon nor to be kept.
        """
        waiting = self.load()
        if waiting is None:
            return
        units = (f"{RESTORE_UNIT}.timer", f"{RESTORE_UNIT}.service")
        states = self._cli.run(["systemctl", "is-active", *units], check=False).stdout.split()
        if {"active", "activating"} & set(states):
            raise LinkError(
                f"No link was changed: an earlier run changed {waiting['wanted']['netdev']} and did not confirm that to"
                f" the end, so the host takes it back by itself within {waiting['rollback_s']} s; run again after that"
            )

    def arm(
        self,
        wanted: t.Mapping[str, t.Any],
        before: t.Mapping[str, t.Any],
        apply: list[list[str]],
        restore: list[list[str]],
        files: t.Mapping[str, str | None],
        rollback_s: int,
    ) -> None:
        """Set the way back first, then the change; both happen after this process has ended."""
        self.disarm()
        record = {
            "wanted": wanted,
            "before": before,
            "apply": apply,
            "restore": restore,
            "files": files,
            "rollback_s": rollback_s,
        }
        write_atomic(RECORD, json.dumps(record, indent=2, sort_keys=True) + "\n", mode=0o600)
        try:
            self._start(RESTORE_UNIT, "restore", rollback_s + GRACE_S)
            self._start(APPLY_UNIT, "apply", GRACE_S)
        except Failure as exc:
            self.disarm()
            raise LinkError(
                f"No link was changed: {wanted['netdev']} manages the host, and there would be no way back from a"
                f" mistake: {exc}"
            ) from exc

    def _start(self, unit: str, part: str, delay_s: int) -> None:
        self._cli.run(
            [
                "systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--on-active={delay_s}",
                "--timer-property=AccuracySec=100ms", sys.executable, "-c", PROGRAM, RECORD, part, DONE,
            ]
        )  # fmt: skip

    def extend(self, rollback_s: int) -> None:
        """Set the clock of the way back anew, so that it does not strike meanwhile. Raises LinkError where it has.

        It is not stopped: what comes next, files above all, may fail or cut the host off as well.
        """
        self._cli.run(["systemctl", "stop", f"{RESTORE_UNIT}.timer"], check=False)
        busy = self._cli.run(["systemctl", "is-active", f"{RESTORE_UNIT}.service"], check=False).stdout.strip()
        if self.rolled_back() or busy in ("active", "activating"):
            raise self._too_late()
        self._start(RESTORE_UNIT, "restore", rollback_s)

    def disarm(self) -> None:
        for unit in (APPLY_UNIT, RESTORE_UNIT):
            self._cli.run(["systemctl", "stop", f"{unit}.timer"], check=False)
            self._cli.run(["systemctl", "reset-failed", f"{unit}.service"], check=False)
        for path in (RECORD, DONE):
            remove(path)


__all__ = ("GRACE_S", "Pending", "restore_commands")
