# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host as the planner sees it: facts (docs/architecture.md) as typed, complete records.

Facts are partial and may be odd: a tool that was missing, a bundle with two files. Everything is coerced here, once,
so that the rest of the planner handles only well-formed values and ``None`` for "not known".
"""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import dicts, mapping, natural

_HEX = re.compile(r"^[0-9a-f]+$")
_BDF = re.compile(r"^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$")
# Unknown virtualization is met as bare metal only where PCIe shows bridges, see Machine.synthetic_pcie.
BARE_METAL = ("none", "")


def text(value: t.Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def number(value: t.Any) -> float | None:
    """A finite number that is not a boolean; strings that hold one count."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, (int, float)) and value == value and abs(value) < 1e15:
        return value
    return None


def integer(value: t.Any) -> int | None:
    found = number(value)
    return int(found) if found is not None else None


def strings(value: t.Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str) and item) if isinstance(value, list) else ()


def normal_bdf(value: str) -> str:
    """0000:18:00.0 for 18:00.0, 0000:18:00.0 and 00000000:18:00.0; other texts come back lower-cased."""
    match = _BDF.match(value.strip().lower())
    if not match:
        return value.strip().lower()
    domain = (match.group(1) or "0").lstrip("0").rjust(4, "0")
    return f"{domain}:{match.group(2)}:{match.group(3)}.{match.group(4)}"


def normal_guid(value: str) -> str:
    """16 hex digits of a GUID in any notation; empty for other texts."""
    digits = value.strip().lower().removeprefix("0x").replace(":", "").replace("-", "")
    return digits if len(digits) == 16 and _HEX.match(digits) else ""


@functools.lru_cache(maxsize=65536)
def pci_key(bdf: str) -> tuple[t.Any, ...]:
    """Bus order. Addresses that are no PCI address sort after those that are, by their text."""
    match = _BDF.match(bdf)
    if match:
        return (0, *(int(part or "0", 16) for part in match.groups()))
    return (1, bdf)


@dataclass(frozen=True)
class Function:
    """One PCI function and where it hangs."""

    bdf: str
    vendor: str = ""
    device: str = ""
    pci_class: str = ""
    driver: str = ""
    numa_node: int | None = None
    upstream: tuple[str, ...] = ()
    root: str = ""
    physfn: str = ""
    link: dict[str, t.Any] = field(default_factory=dict, hash=False)
    sw_mng: bool = False
    product: str = ""

    @property
    def is_network(self) -> bool:
        return self.pci_class.startswith(("0200", "0207", "0280"))


@dataclass(frozen=True)
class Gpu:
    pci: str
    index: int | None
    name: str
    device: str
    numa_node: int | None


@dataclass(frozen=True)
class Port:
    number: int
    state: str
    phys_state: str
    rate_gbps: float | None
    link_layer: str
    netdevs: tuple[str, ...]
    active_mtu_bytes: int | None
    gids: tuple[dict[str, t.Any], ...] = field(hash=False, default=())
    pkeys: tuple[tuple[int, int], ...] = ()  # (index, key), in the order of the table
    sm_lid: int | None = None
    lid: int | None = None

    @property
    def guid(self) -> str:
        """The port's GUID, 16 hex digits: the second half of its first GID."""
        digits = text(self.gids[0].get("gid")).replace(":", "").lower() if self.gids else ""
        return digits[16:] if len(digits) == 32 else ""

    @property
    def subnet_prefix(self) -> str:
        """What the subnet manager calls the port's subnet: the first half of its first GID."""
        digits = text(self.gids[0].get("gid")).replace(":", "").lower() if self.gids else ""
        return digits[:16] if len(digits) == 32 else ""

    @property
    def active(self) -> bool:
        return self.state in ("active", "armed", "active_defer")


@dataclass(frozen=True)
class Hca:
    """One RDMA device."""

    name: str
    pci: str
    driver: str
    transport: str
    board_id: str
    hca_type: str
    node_guid: str
    sys_image_guid: str
    software: bool
    subfunction: bool
    parent_netdev: str
    ports: tuple[Port, ...]

    @property
    def active(self) -> bool:
        return any(port.active for port in self.ports)

    @property
    def model(self) -> str:
        """What two cards of one kind share; the board id says it exactly, the device id nearly."""
        return self.board_id or self.hca_type


@dataclass(frozen=True)
class Netdev:
    name: str
    pci: str
    mac: str
    mtu: int | None
    mtu_max: int | None
    operstate: str
    carrier: bool | None
    speed_mbps: int | None
    kind: str
    driver: str
    master: str
    bond_members: tuple[str, ...]
    bond_active: tuple[str, ...]
    bond_mode: str
    vlan_parent: str
    addresses: tuple[str, ...]
    infiniband: bool

    @property
    def global_addresses(self) -> tuple[str, ...]:
        return tuple(a for a in self.addresses if not a.lower().startswith(("fe80:", "127.", "::1/")))


@dataclass(frozen=True)
class Machine:
    """Everything of one host's facts that the planner looks at."""

    name: str
    virtualization: str | None
    container: bool
    product: str
    functions: dict[str, Function]
    gpus: tuple[Gpu, ...]
    nvswitches: tuple[str, ...]
    hcas: tuple[Hca, ...]
    netdevs: dict[str, Netdev]
    facts: dict[str, t.Any]

    @property
    def virtual(self) -> bool:
        return self.virtualization is not None and self.virtualization not in BARE_METAL

    @functools.cached_property
    def gpu_position(self) -> dict[str, int]:
        return {gpu.pci: position for position, gpu in enumerate(self.gpus)}

    @functools.cached_property
    def hca_by_name(self) -> dict[str, Hca]:
        return {hca.name: hca for hca in self.hcas}

    def function(self, bdf: str) -> Function:
        return self.functions.get(bdf) or Function(bdf)

    def netdev_of(self, hca: Hca, port: Port | None = None) -> str:
        """The interface of a port: the physical one, where representors or VLANs share the port."""
        ports = [port] if port else list(hca.ports)
        names = [name for p in ports for name in p.netdevs] or ([hca.parent_netdev] if hca.parent_netdev else [])
        if not names and hca.pci:
            on_function = [dev.name for dev in self.netdevs.values() if dev.pci == hca.pci and dev.kind != "vf"]
            names = sorted(on_function, key=natural) if len(hca.ports) <= 1 else []
        for wanted in ("bond", "physical", "ipoib", ""):
            for name in names:
                dev = self.netdevs.get(name)
                if (dev.kind if dev else "") == wanted:
                    return name
        return names[0] if names else ""


def from_facts(name: str, facts: t.Any) -> Machine:
    """Read one host's facts; never raises."""
    facts = mapping(facts)
    host = mapping(facts.get("host"))
    functions = {}
    for bdf, data in mapping(facts.get("pci")).items():
        if isinstance(bdf, str):
            bdf = normal_bdf(bdf)
            functions[bdf] = _function(bdf, mapping(data))
    product = mapping(host.get("product"))
    return Machine(
        name=name,
        virtualization=host["virtualization"] if isinstance(host.get("virtualization"), str) else None,
        container=host.get("container") is True,
        product=" ".join(part for part in (text(product.get("vendor")), text(product.get("name"))) if part),
        functions=functions,
        gpus=_gpus(facts, functions),
        nvswitches=_nvswitches(facts, functions),
        hcas=_hcas(facts, functions),
        netdevs={n: _netdev(n, mapping(d)) for n, d in mapping(facts.get("netdevs")).items() if isinstance(n, str)},
        facts=facts,
    )


def _function(bdf: str, data: dict[str, t.Any]) -> Function:
    vpd = mapping(data.get("vpd"))
    return Function(
        bdf=bdf,
        vendor=text(data.get("vendor")).lower().removeprefix("0x"),
        device=text(data.get("device")).lower().removeprefix("0x"),
        pci_class=text(data.get("class")).lower().removeprefix("0x"),
        driver=text(data.get("driver")),
        numa_node=_numa(data.get("numa_node")),
        upstream=tuple(normal_bdf(b) for b in strings(data.get("upstream"))),
        root=text(data.get("root")),
        physfn=text(data.get("physfn")),
        link=mapping(data.get("link")),
        sw_mng=vpd.get("sw_mng") is True,
        product=text(vpd.get("product_name")),
    )


def _numa(value: t.Any) -> int | None:
    node = integer(value)
    return node if node is not None and node >= 0 else None


def _gpus(facts: dict[str, t.Any], functions: dict[str, Function]) -> tuple[Gpu, ...]:
    """GPUs in bus order, which is nvidia-smi's order; the PCI tree fills in where the list is missing."""
    found: dict[str, Gpu] = {}
    for data in dicts(facts.get("gpus")):
        bdf = normal_bdf(text(data.get("pci")))
        if bdf:
            function = functions.get(bdf) or Function(bdf)
            numa = _numa(data.get("numa_node"))
            found[bdf] = Gpu(
                pci=bdf,
                index=integer(data.get("index")),
                name=text(data.get("name")),
                device=function.device,
                numa_node=function.numa_node if numa is None else numa,
            )
    if not found:
        for function in functions.values():
            graphics = function.pci_class.startswith("0302") or (
                function.pci_class.startswith("0300") and function.driver == "nvidia"
            )
            if function.vendor == "10de" and graphics:
                found[function.bdf] = Gpu(function.bdf, None, "", function.device, function.numa_node)
    return tuple(sorted(found.values(), key=lambda gpu: pci_key(gpu.pci)))


def _nvswitches(facts: dict[str, t.Any], functions: dict[str, Function]) -> tuple[str, ...]:
    named = {normal_bdf(text(data.get("pci"))) for data in dicts(facts.get("nvswitches"))} - {""}
    seen = {f.bdf for f in functions.values() if f.vendor == "10de" and f.pci_class.startswith("0680")}
    return tuple(sorted(named | seen, key=pci_key))


def _hcas(facts: dict[str, t.Any], functions: dict[str, Function]) -> tuple[Hca, ...]:
    found = []
    for name, data in mapping(facts.get("rdma_devices")).items():
        if not isinstance(name, str) or not name:
            continue
        data = mapping(data)
        ports = []
        for key, port in mapping(data.get("ports")).items():
            index = integer(key)
            if index is not None and index > 0:
                ports.append(_port(index, mapping(port)))
        driver = text(data.get("driver"))
        found.append(
            Hca(
                name=name,
                pci=normal_bdf(text(data.get("pci"))),
                driver=driver,
                transport=text(data.get("transport")).lower(),
                board_id=text(data.get("board_id")),
                hca_type=text(data.get("hca_type")),
                node_guid=normal_guid(text(data.get("node_guid"))),
                sys_image_guid=normal_guid(text(data.get("sys_image_guid"))),
                software=data.get("software") is True or driver in ("rdma_rxe", "rxe", "siw"),
                subfunction=data.get("subfunction") is True,
                parent_netdev=text(data.get("parent_netdev")),
                ports=tuple(sorted(ports, key=lambda p: p.number)),
            )
        )
    return tuple(sorted(found, key=lambda hca: (pci_key(hca.pci), natural(hca.name))))


def _port(index: int, data: dict[str, t.Any]) -> Port:
    layer = text(data.get("link_layer"))
    rate = number(data.get("rate_gbps"))
    return Port(
        number=index,
        state=text(data.get("state")).lower(),
        phys_state=text(data.get("phys_state")).lower(),
        rate_gbps=rate if rate and rate > 0 else None,
        link_layer={"infiniband": "InfiniBand", "ethernet": "Ethernet"}.get(layer.lower(), ""),
        netdevs=strings(data.get("netdevs")),
        active_mtu_bytes=integer(data.get("active_mtu_bytes")),
        gids=tuple(dicts(data.get("gids"))),
        pkeys=_pkeys(data),
        sm_lid=integer(data.get("sm_lid")),
        lid=integer(data.get("lid")),
    )


def _pkeys(data: dict[str, t.Any]) -> tuple[tuple[int, int], ...]:
    """The P_Key table. What was recorded without places stands as it was found: empty places come last, as a rule."""
    found = mapping(data.get("pkey_table")) or {
        str(index): item for index, item in enumerate(strings(data.get("pkeys")))
    }
    table = []
    for place, value in found.items():
        index = integer(place)
        try:
            table.append((t.cast(int, index), int(value, 16)))
        except (TypeError, ValueError):
            continue
    return tuple(sorted((index, value) for index, value in table if index is not None))


def _netdev(name: str, data: dict[str, t.Any]) -> Netdev:
    bond, vlan = mapping(data.get("bond")), mapping(data.get("vlan"))
    speed = integer(data.get("speed_mbps"))
    carrier = data.get("carrier")
    return Netdev(
        name=name,
        pci=normal_bdf(text(data.get("pci"))),
        mac=text(data.get("mac")).lower(),
        mtu=integer(data.get("mtu")),
        mtu_max=integer(data.get("mtu_max")),
        operstate=text(data.get("operstate")).lower(),
        carrier=carrier if isinstance(carrier, bool) else None,
        speed_mbps=speed if speed and speed > 0 else None,
        kind=text(data.get("kind")),
        driver=text(data.get("driver")),
        master=text(data.get("master")),
        bond_members=strings(bond.get("members")),
        bond_active=strings(bond.get("active")),
        bond_mode=text(bond.get("mode")),
        vlan_parent=text(vlan.get("link")),
        addresses=strings(data.get("addresses")),
        infiniband=integer(data.get("type")) == 32 or text(data.get("kind")) == "ipoib",
    )
