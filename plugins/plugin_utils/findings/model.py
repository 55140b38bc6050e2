# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Views: how a rule sees a host and the rack.

Facts are partial by nature (a bundle may hold two files), so every access is by path and gives ``None`` where nothing
is known. A rule therefore states what it *saw*; it never has to guard against a missing key.
"""

from __future__ import annotations

import collections
import functools
import re
import typing as t

T = t.TypeVar("T")

# Packages whose version is the driver's, across distributions.
_DRIVER_PACKAGE = re.compile(
    r"^(cuda-drivers|nvidia-driver|nvidia-open|nvidia-dkms|nvidia-kernel-(open-)?dkms|nvidia-headless|nvidia-kernel-common"
    r"|nvidia-utils|libnvidia-compute|kmod-nvidia|nvidia-kmod)(-|$)"
)

_DIGITS = re.compile(r"(\d+)")
# Any machine has more functions than this; an excerpt of lspci has fewer.
_COMPLETE_PCI = 8
# Written by a run of the collection; proof that the layer was configured once on this host.
MARKERS: dict[str, tuple[str, ...]] = {
    "rdma": ("/etc/sysctl.d/90-gpu-fabric.conf", "/var/lib/gpu_fabric/links.json", "/var/lib/gpu_fabric/qos.json"),
    "nccl": ("/etc/nccl.conf",),
}


def natural(text: str) -> tuple[t.Any, ...]:
    """Sort key that puts gpu-2 before gpu-10."""
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in _DIGITS.split(str(text)) if part)


def majority(values: t.Iterable[T]) -> T | None:
    """The value that more than half of *values* have; None where there is no such value."""
    counted = collections.Counter(values)
    total = sum(counted.values())
    for value, count in counted.most_common(1):
        if count * 2 > total:
            return value
    return None


def get(data: t.Any, *path: t.Any) -> t.Any:
    for key in path:
        if isinstance(data, dict):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and -len(data) <= key < len(data):
            data = data[key]
        else:
            return None
    return data


def dicts(value: t.Any) -> list[dict[str, t.Any]]:
    """The dictionaries of a list of facts; anything else is not a fact."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def mapping(value: t.Any) -> dict[t.Any, t.Any]:
    return value if isinstance(value, dict) else {}


def short_bdf(pci: str) -> str:
    """0000:0a:00.0 → 0a:00.0, as lspci prints it; other domains stay."""
    return pci[5:] if pci.startswith("0000:") else pci


class Port(t.NamedTuple):
    """One port of one RDMA device, with what the plan makes of it."""

    device: str
    number: str
    data: dict[str, t.Any]
    owner: dict[str, t.Any]
    role: str | None
    rail: dict[str, t.Any] | None

    @property
    def state(self) -> str | None:
        return self.data.get("state")

    @property
    def active(self) -> bool:
        return self.data.get("state") == "active"

    @property
    def netdev(self) -> str | None:
        if self.rail and self.rail.get("netdev"):
            return self.rail["netdev"]
        names = self.data.get("netdevs")
        return names[0] if isinstance(names, list) and names else None

    @property
    def label(self) -> str:
        """mlx5_3 port 1 (rail 3, ens1f0np0)"""
        inside = [f"rail {self.rail['rail']}" if self.rail and "rail" in self.rail else "", self.netdev or ""]
        text = ", ".join(part for part in inside if part)
        return f"{self.device} port {self.number}" + (f" ({text})" if text else "")


class HostView:
    """One host: its facts, its part of the plan, its intent."""

    def __init__(
        self,
        name: str,
        facts: t.Any,
        plan: t.Any = None,
        intent: t.Any = None,
        recorded_only: bool = False,
        rack_plan: t.Any = None,
    ) -> None:
        self.name = name
        self.facts = mapping(facts)
        self.plan = mapping(plan)
        self.intent = mapping(intent)
        self.recorded_only = recorded_only
        self.rack_plan = mapping(rack_plan)

    def get(self, *path: t.Any) -> t.Any:
        return get(self.facts, *path)

    def section(self, *path: t.Any) -> dict[t.Any, t.Any]:
        return mapping(get(self.facts, *path))

    def want(self, name: str, default: t.Any = None) -> t.Any:
        """The intent variable gpu_fabric_<name>."""
        value = self.intent.get(f"gpu_fabric_{name}")
        return default if value is None else value

    @property
    def files(self) -> dict[str, str]:
        return {path: text for path, text in self.section("files").items() if isinstance(text, str)}

    def recorded(self, name: str) -> str | None:
        """The text of a command's output that has no facts of its own, by the bundle's name without extension."""
        text = self.section("recorded").get(name)
        return text if isinstance(text, str) else None

    def module(self, name: str) -> dict[str, t.Any]:
        return mapping(get(self.facts, "modules", name) or get(self.facts, "modules", name.replace("-", "_")))

    def loaded(self, name: str) -> bool | None:
        """Whether the kernel module is loaded; None: the module list is not known."""
        if "modules" not in self.facts:
            return None
        return bool(self.module(name).get("loaded"))

    @property
    def virtual(self) -> bool | None:
        kind = self.get("host", "virtualization")
        return None if kind is None else kind not in ("none", "")

    def configured(self, layer: str) -> bool:
        """Whether a run of the collection configured *layer* here before."""
        return any(self.files.get(path) is not None for path in MARKERS[layer])

    def noted(self, id_: str) -> bool:
        """Whether the planner noted this already."""
        return any(note.get("id") == id_ for note in dicts(self.plan.get("notes")))

    @property
    def pci_is_complete(self) -> bool:
        """Whether what is not among the PCI functions is not in the machine: a recording may hold a few lines only."""
        return not self.recorded_only or len(self.section("pci")) >= _COMPLETE_PCI

    @functools.cached_property
    def gpus(self) -> list[dict[str, t.Any]]:
        return dicts(self.facts.get("gpus"))

    @functools.cached_property
    def rails(self) -> list[dict[str, t.Any]]:
        return dicts(self.plan.get("rails"))

    @functools.cached_property
    def roles(self) -> dict[str, str]:
        """Device name → role, as planned."""
        return {d["name"]: d["role"] for d in dicts(self.plan.get("devices")) if "name" in d and "role" in d}

    @functools.cached_property
    def ports(self) -> list[Port]:
        """Every port of every RDMA device that is hardware, rails in order of the devices' names."""
        rails = {(str(rail.get("hca")), str(rail.get("port", 1))): rail for rail in self.rails}
        found = []
        for name in sorted(self.section("rdma_devices"), key=natural):
            device = self.section("rdma_devices", name)
            if device.get("software"):
                continue
            for number in sorted(mapping(device.get("ports")), key=natural):
                data = mapping(device["ports"][number])
                rail = rails.get((name, str(number)))
                found.append(Port(name, str(number), data, device, self.roles.get(name), rail))
        return found

    @functools.cached_property
    def rail_ports(self) -> list[Port]:
        return [port for port in self.ports if port.rail is not None]

    def driver_version(self) -> tuple[str, str] | None:
        """The NVIDIA driver's version and where it was seen, the running one first."""
        for path, origin in (
            (("driver", "loaded", "version"), "the loaded kernel module"),
            (("driver", "installed_version"), "the installed package"),
        ):
            value = self.get(*path)
            if isinstance(value, str) and value:
                return upstream(value), origin
        for name in sorted(self.section("packages")):
            package = mapping(self.section("packages")[name])
            if _DRIVER_PACKAGE.match(name) and package.get("status") in (None, "installed") and package.get("version"):
                return upstream(str(package["version"])), f"package {name}"
        return None


class RunView(HostView):
    """One host at the end of a run: its facts before or after, and the results that the layers' tasks registered."""

    def __init__(self, name: str, facts: t.Any, plan: t.Any, results: t.Mapping[str, t.Any]) -> None:
        super().__init__(name, facts, plan)
        # a skipped or failed task did not bring the host to where the plan wants it
        self.results = {
            key: mapping(result)
            for key, result in results.items()
            if mapping(result) and not mapping(result).get("skipped") and not mapping(result).get("failed")
        }

    def applied(self, *names: str) -> bool:
        return any(name in self.results for name in names)


class RackView:
    """All hosts, in natural order of their names, and what was recorded for the rack as a whole."""

    def __init__(self, hosts: list[HostView], plan: t.Any, outputs: t.Any) -> None:
        self.hosts = hosts
        self.plan = mapping(plan)
        self.outputs = mapping(outputs)
        self.name = ""

    def text(self, name: str) -> str | None:
        value = self.outputs.get(name)
        return value if isinstance(value, str) else None

    def by_name(self, name: str) -> HostView | None:
        return self._index.get(name)

    @functools.cached_property
    def _index(self) -> dict[str, HostView]:
        return {host.name: host for host in self.hosts}

    @property
    def variables(self) -> dict[str, t.Any]:
        """The group variables recorded with a bundle."""
        return mapping(self.outputs.get("vars"))

    @property
    def inventory(self) -> dict[str, t.Any]:
        return mapping(self.outputs.get("inventory"))


_PACKAGE_VERSION = re.compile(r"^(?:\d+:)?(\d+(?:\.\d+)+)")


def upstream(version: str) -> str:
    """3:550.163.01-0ubuntu1 → 550.163.01."""
    match = _PACKAGE_VERSION.match(version.strip())
    return match.group(1) if match else version.strip()


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
