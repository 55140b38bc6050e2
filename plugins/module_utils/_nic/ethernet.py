# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What ``ethtool`` sets on an Ethernet port: link mode, forward error correction, channels and rings.

All of them interrupt the port. Speed, negotiation and FEC train the link anew; channels and rings are made anew, for
which drivers take the carrier away for a moment or close and open the whole interface.
"""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import KeyedKnob, Knob, Port
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    ethtool,
    ethtool_channels,
    ethtool_fec,
    ethtool_rings,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed


class EthtoolKnob(Knob):
    """A setting that ``ethtool`` reads with one option and writes with another."""

    optional = True
    disruption = "linkflap"

    def __init__(self, port: Port, cli: Cli) -> None:
        self.netdev, self.cli = port.netdev, cli

    def ask(self, option: str | None, parse: t.Callable[[str], Parsed]) -> dict[str, t.Any]:
        """What is said of the port; nothing where the driver has no such settings or there is no ethtool."""
        if self.cli.which("ethtool") is None:
            return {}
        answer = self.cli.run(["ethtool", *([option] if option else []), self.netdev], check=False)
        found = parse(answer.stdout).value["interfaces"] if answer.rc == 0 else []
        return dict(found[0]) if found else {}

    def tell(self, option: str, words: t.Iterable[str]) -> None:
        result = self.cli.run(["ethtool", option, self.netdev, *words], check=False)
        if result.rc != 0:
            said = result.stderr.strip() or result.stdout.strip() or "no message"
            raise Failure(f"{self.netdev}: {result.command} exited with {result.rc}: {said}")


class LinkMode(EthtoolKnob, KeyedKnob):
    """Speed and negotiation: ``speed_gbps`` (None: any that the port supports) and ``autoneg``.

    With negotiation, only the modes of that speed are offered to the other end; without, the port is forced to it.
    ``modes`` stands for a selection that a speed does not say, so that a first value can be given back.

    One hangs on the other: the first value of each is all that the port had by itself, and both are written in one.
    """

    name = "link"
    joint = True
    may_cut = True

    def _settings(self) -> dict[str, t.Any]:
        return self.ask(None, ethtool.parse)

    def read(self) -> dict[str, t.Any] | None:
        settings = self._settings()
        supported = settings.get("supported_link_modes")
        if not supported or "autoneg" not in settings:
            return None
        offered = settings.get("advertised_link_modes") or []
        speeds = ethtool.speeds_of(offered)
        found: dict[str, t.Any] = {"autoneg": settings["autoneg"], "speed_gbps": None}
        if not settings["autoneg"]:
            # Some drivers show what a port is forced to among the offered modes, the others only while there is a link.
            now = settings.get("speed_mbps", 0) // 1000
            found["speed_gbps"] = speeds[0] if len(speeds) == 1 else now or None
        elif offered and set(offered) < set(supported):
            found["speed_gbps"] = speeds[0] if len(speeds) == 1 else None
            if {mode for mode in supported if ethtool.speed_of(mode) in speeds} != set(offered) or len(speeds) != 1:
                found["modes"] = sorted(offered)
        return found

    def first(self, present: t.Any, wanted: t.Any) -> t.Any:
        return {key: present for key, value in wanted.items() if not isinstance(value, dict)}

    def meant(self, wanted: t.Any) -> t.Any:
        """What is asked for over what the port had, where some of that goes back; modes are part of the speed."""
        asked = {key: value for key, value in wanted.items() if not isinstance(value, dict)}
        had = dict(next((value for value in wanted.values() if isinstance(value, dict)), {}))
        if "speed_gbps" in asked:
            had.pop("modes", None)
        return {**had, **asked}

    def write(self, value: dict[str, t.Any]) -> None:
        words = []
        if value.get("speed_gbps") and not value.get("modes"):
            # Nothing that fast has half duplex; a port that is forced must be told all the same.
            words += ["speed", str(value["speed_gbps"] * 1000), "duplex", "full"]
        if "autoneg" in value:
            words += ["autoneg", "on" if value["autoneg"] else "off"]
        if value.get("autoneg") and (value.get("modes") or not value.get("speed_gbps")):
            supported = self._settings().get("supported_link_modes") or []
            chosen = value.get("modes") or supported
            words += ["advertise", *(word for mode in supported for word in (mode, "on" if mode in chosen else "off"))]
        self.tell("-s", words)

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        if wanted.get("modes"):
            return bool(present.get("modes") == wanted["modes"])
        return all(present.get(key) == value for key, value in wanted.items())

    def confirmed(self, present: t.Any, wanted: t.Any) -> bool:
        unseen = present.get("speed_gbps") is None and not present["autoneg"] and not self._settings().get("link")
        seen = {**present, "speed_gbps": wanted.get("speed_gbps")} if unseen else present
        return self.same(seen, wanted)

    def refusal(self, wanted: t.Any) -> str:
        settings = self._settings()
        speeds = ethtool.speeds_of(settings.get("supported_link_modes") or [])
        if wanted.get("speed_gbps") and wanted["speed_gbps"] not in speeds:
            return f"the port supports {', '.join(map(str, speeds)) or 'no speed that is known'} Gb/s"
        if wanted.get("autoneg") and settings.get("extra", {}).get("Supports auto-negotiation") == "No":
            return "the port does not negotiate; allowed is autoneg false"
        return ""


class Fec(EthtoolKnob):
    """Forward error correction by the names that ``--set-fec`` takes.

    Drivers differ in what they list: what was set, or all that the port can do. ethtool cannot tell one from the other.
    """

    name = "fec"
    may_cut = True

    def __init__(self, port: Port, cli: Cli) -> None:
        super().__init__(port, cli)
        self.active: list[str] = []

    def read(self) -> str | None:
        found = self.ask("--show-fec", ethtool_fec.parse)
        self.active = found.get("active") or []
        return " ".join(found.get("configured") or []) or None

    def write(self, value: str) -> None:
        words = value.split()
        self.tell("--set-fec", ["encoding", *(["auto"] if "auto" in words else words)])

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        names = present.split()
        if " " in wanted:
            return False  # a first value of several; what they meant cannot be seen, so it is given back once
        if wanted == "auto":
            return "auto" in names
        return bool(present == wanted) or (wanted in names and self.active == [wanted])

    def confirmed(self, present: t.Any, wanted: t.Any) -> bool:
        unseen = not self.active and set(wanted.split()) <= set(present.split())
        return self.same(present, wanted) or present == wanted or unseen

    def refusal(self, wanted: t.Any) -> str:
        supported = [name.lower() for name in self.ask(None, ethtool.parse).get("supported_fec") or []]
        names = ["off" if name == "none" else name for name in supported]
        missing = [name for name in wanted.split() if name not in (*names, "auto")]
        return f"the port supports {', '.join(['auto', *names])}" if names and missing else ""


class Channels(EthtoolKnob):
    """Pairs of a receive and a send queue, each with an interrupt of its own."""

    name = "channels"

    def _numbers(self) -> dict[str, t.Any]:
        return self.ask("-l", ethtool_channels.parse)

    def read(self) -> int | None:
        return t.cast("int | None", self._numbers().get("current", {}).get("combined"))

    def write(self, value: int) -> None:
        self.tell("-L", ["combined", str(value)])

    def refusal(self, wanted: t.Any) -> str:
        most = self._numbers().get("maximum", {}).get("combined")
        return f"the device has {most} at most" if most is not None and wanted > most else ""


class Rings(EthtoolKnob, KeyedKnob):
    """Descriptors of each receive and send queue; only the sides that are named count, ``max`` names both."""

    name = "rings"

    def _numbers(self) -> dict[str, t.Any]:
        return self.ask("-g", ethtool_rings.parse)

    def _sizes(self, value: t.Any) -> dict[str, int]:
        if value != "max":
            return dict(value)
        most = self._numbers().get("maximum", {})
        return {side: most[side] for side in ("rx", "tx") if side in most}

    def read(self) -> dict[str, int] | None:
        current = self._numbers().get("current", {})
        return {side: current[side] for side in ("rx", "tx") if side in current} or None

    def write(self, value: t.Any) -> None:
        self.tell("-G", [word for side, size in self._sizes(value).items() for word in (side, str(size))])

    def first(self, present: t.Any, wanted: t.Any) -> t.Any:
        return super().first(present, self._sizes(wanted))

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        return all(present.get(side) == size for side, size in self._sizes(wanted).items())

    def refusal(self, wanted: t.Any) -> str:
        most = self._numbers().get("maximum", {})
        over = [side for side, size in self._sizes(wanted).items() if size > most.get(side, size)]
        return f"the device has {', '.join(f'{side} {most[side]}' for side in over)} at most" if over else ""


def ethernet_knobs(port: Port, cli: Cli) -> list[Knob]:
    """In the order in which they must be set: the link first, then what hangs on the interface."""
    return [LinkMode(port, cli), Fec(port, cli), Channels(port, cli), Rings(port, cli)]


__all__ = ("Channels", "Fec", "LinkMode", "Rings", "ethernet_knobs")
