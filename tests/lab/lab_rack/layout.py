# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rack consists of: nodes, addresses, interfaces, networks. Pure: values in, values out."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

DEFAULT_NAME = "railyard"
ALL = "all"
MAX_NODES = 64
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}\Z")


class LayoutError(ValueError):
    """A rack that cannot be built as asked; the message says what is allowed."""


def tag(rack_name: str) -> str:
    """Six characters that mark this rack's interfaces on the controller (an interface name has 15)."""
    return "ry" + hashlib.sha256(rack_name.encode()).hexdigest()[:4]


def bridge(prefix: str) -> str:
    """The management bridge of the rack that has this name on the machine."""
    return f"{tag(prefix)}-mgmt"


def is_bridge(name: str) -> bool:
    return re.fullmatch(r"ry[0-9a-f]{4}-mgmt", name) is not None


def fabric_netns(prefix: str) -> str:
    return f"{prefix}-fabric"


def check_name(name: str) -> None:
    if not _NAME.match(name):
        raise LayoutError(f"lab_name is {name!r}; it needs lower-case letters, digits and hyphens, a letter first.")
    if name == ALL:
        raise LayoutError(f"lab_name is {name!r}, which means every rack of the checkout; call this one otherwise.")


def network_of(text: str) -> str:
    """The network of an address with its prefix length."""
    return str(ipaddress.ip_network(text, strict=False))


def _overlap(candidate: ipaddress.IPv4Network, used: Iterable[str]) -> bool:
    networks = (ipaddress.ip_network(text, strict=False) for text in used)
    return any(net.version == 4 and net.prefixlen > 0 and candidate.overlaps(net) for net in networks)


def is_free(used: Iterable[str], network: str) -> bool:
    return not _overlap(ipaddress.IPv4Network(network), used)


def choose_subnet(used: Iterable[str], wanted: str = "") -> str:
    """The first /24 of 10.89.0.0/16 that overlaps no network of the controller, or `wanted` when given."""
    taken = list(used)
    candidates = [wanted] if wanted else map(str, ipaddress.IPv4Network("10.89.0.0/16").subnets(new_prefix=24))
    for candidate in candidates:
        if is_free(taken, candidate):
            return candidate
    reason = f"{wanted} overlaps a network of this machine" if wanted else "every /24 of 10.89.0.0/16 is in use"
    raise LayoutError(f"No free lab network: {reason}; set lab_subnet to a free IPv4 network.")


def node_names(count: int) -> list[str]:
    if not 1 <= count <= MAX_NODES:
        raise LayoutError(f"lab_nodes is {count}; a lab rack has 1 to {MAX_NODES} nodes.")
    return [f"gpu-{number:02d}" for number in range(1, count + 1)]


def management_mac(rack_name: str, node: str) -> str:
    digest = hashlib.sha256(f"{rack_name}/{node}".encode()).hexdigest()
    return "02:" + ":".join(digest[i : i + 2] for i in range(0, 10, 2))


def build(
    *,
    name: str,
    count: int,
    profile: str,
    subnet: str,
    engine: str,
    image: str,
    port: int,
    nics_of: Callable[[str], list[dict[str, str]]],
    prefix: str = "",
) -> dict[str, Any]:
    """Describe the whole rack; the result is rack.json. `prefix`: its name on this machine, where that is another."""
    check_name(name)
    prefix = prefix or name
    network = ipaddress.ip_network(subnet)
    names = node_names(count)
    if network.num_addresses < count + 16:
        raise LayoutError(f"lab_subnet {subnet} is too small for {count} nodes; take a /24.")
    gateway = str(network[1])
    nodes = []
    for index, node in enumerate(names):
        nics = [{"name": "eth0", "mac": management_mac(name, node), "network": "management"}]
        nics += [{"name": n["name"], "mac": n["mac"].lower(), "network": n["network"]} for n in nics_of(node)]
        doubled = {n["name"] for n in nics if [m["name"] for m in nics].count(n["name"]) > 1}
        if doubled:
            raise LayoutError(f"Profile {profile} gives {node} the interface {', '.join(sorted(doubled))} twice.")
        described = {
            "name": node,
            "container": f"{prefix}-{node}",
            "address": str(network[11 + index]),
            "profile": profile,
            "nics": nics,
        }
        # A container whose label differs was made for another rack, image or address, and is made anew.
        made_of = json.dumps([described, image, gateway, names])
        nodes.append({**described, "spec": hashlib.sha256(made_of.encode()).hexdigest()[:16]})
    return {
        "schema": 1,
        "name": name,
        "prefix": prefix,
        "engine": engine,
        "image": image,
        "profile": profile,
        "subnet": subnet,
        "prefix_length": network.prefixlen,
        "gateway": gateway,
        "bridge": bridge(prefix),
        "fabric_netns": fabric_netns(prefix),
        "port": port,
        "repository_url": f"http://{gateway}:{port}",
        "nodes": nodes,
    }
