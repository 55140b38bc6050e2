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
MAX_NODES = 64
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}\Z")


class LayoutError(ValueError):
    """A rack that cannot be built as asked; the message says what is allowed."""


def tag(rack_name: str) -> str:
    """Six characters that mark this rack's interfaces on the controller (an interface name has 15)."""
    return "ry" + hashlib.sha256(rack_name.encode()).hexdigest()[:4]


def choose_subnet(used: Iterable[str], wanted: str = "") -> str:
    """The first /24 of 10.89.0.0/16 that overlaps no route of the controller, or `wanted` when given."""
    taken = [ipaddress.ip_network(text, strict=False) for text in used]
    taken = [net for net in taken if net.version == 4 and net.prefixlen > 0]
    if wanted:
        candidates = [ipaddress.ip_network(wanted)]
    else:
        candidates = list(ipaddress.ip_network("10.89.0.0/16").subnets(new_prefix=24))
    for candidate in candidates:
        if not any(candidate.overlaps(net) for net in taken):
            return str(candidate)
    reason = f"{wanted} overlaps a route of this machine" if wanted else "every /24 of 10.89.0.0/16 is routed already"
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
) -> dict[str, Any]:
    """Describe the whole rack; the result is rack.json."""
    if not _NAME.match(name):
        raise LayoutError(f"lab_name is {name!r}; it needs lower-case letters, digits and hyphens, a letter first.")
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
            "container": f"{name}-{node}",
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
        "engine": engine,
        "image": image,
        "profile": profile,
        "subnet": subnet,
        "prefix_length": network.prefixlen,
        "gateway": gateway,
        "bridge": f"{tag(name)}-mgmt",
        "fabric_netns": f"{name}-fabric",
        "port": port,
        "repository_url": f"http://{gateway}:{port}",
        "nodes": nodes,
    }
