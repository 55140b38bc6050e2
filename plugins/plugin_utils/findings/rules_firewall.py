# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Firewalls between members of the rack."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import nft_ruleset
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    dicts,
    mapping,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.nccl_log import messages

BLOCKED = define(
    "firewall",
    "RF-FIREWALL-BLOCKS-PEERS",
    title="A host's firewall blocks the other members of the rack",
    severity="fail",
    phase="preflight",
    means="NCCL's bootstrap, its proxies and MPI use dynamic TCP ports in both directions. RDMA itself does not pass "
    "the host's firewall, so a good ib_write_bw proves nothing about them; jobs hang or end with 'No route to host'.",
    looks_at="Failed connections in NCCL and MPI logs, the zones of firewalld and which sources and interfaces they "
    "cover, input chains of nftables that drop.",
    cause="Only named services are open. REJECT gives 'No route to host' or 'Connection refused', DROP a time-out.",
    remedy="Admit all TCP between the members by their source addresses (site.yml --tags security writes that set), "
    "for firewalld: firewall-cmd --permanent --zone=trusted --add-source=MEMBER for each member, then firewall-cmd "
    "--reload.",
    check="A TCP connection to a random high port works in both directions for each pair.",
    source="https://github.com/NVIDIA/nccl/issues/388; NCCL networking troubleshooting guide",
    mended_by="security",
)

TABLES_GONE = define(
    "firewall",
    "RF-FIREWALL-TABLES-GONE",
    title="Rules of another program were flushed",
    severity="fail",
    phase="verify",
    means="Packet filter tables that container engines or Kubernetes made are gone: published ports, NAT of containers "
    "and service addresses no longer work until those programs are restarted.",
    looks_at="Tables of nftables and chains of iptables that belong to Docker, Kubernetes, CNI plug-ins, libvirt or "
    "Podman, in the earlier recording of the bundle and now.",
    cause="A firewall was loaded with flush ruleset or iptables -F, or nftables.service was restarted with "
    "the distribution's /etc/nftables.conf, which begins with flush ruleset.",
    remedy="Restart the programs named (systemctl restart docker, kubelet, libvirtd) and let the firewall own one "
    "table (site.yml --tags security writes table inet gpu_fabric and touches no other); remove flush ruleset from "
    "/etc/nftables.conf.",
    check="nft list tables lists the tables again, also after systemctl reload nftables.",
    source="nftables wiki: atomic rule replacement; Docker and Kubernetes packet filtering documentation",
)

_CONNECT = re.compile(
    r"(?:Connect to|connect\(\) to|connection to) (?P<address>[0-9a-fA-F.:]+?)(?:<(?P<port>\d+)>)?,? .*?"
    r"(?P<why>No route to host|Connection refused|timed out|Software caused connection abort)",
    re.IGNORECASE,
)


_IPTABLES = re.compile(r"^(-P INPUT DROP|:INPUT DROP|Chain INPUT \(policy DROP)|^-A INPUT .*-j (REJECT|DROP)|^REJECT ")


class Attempt(t.NamedTuple):
    source: str
    address: str
    port: str
    why: str
    line: str


def failed_connections(rack: RackView) -> list[Attempt]:
    found: dict[tuple[str, str], Attempt] = {}
    for node, rest, line in messages(rack):
        match = _CONNECT.search(rest)
        if match:
            attempt = Attempt(node, match["address"], match["port"] or "", match["why"], line)
            found.setdefault((node, match["address"]), attempt)
    return list(found.values())


def _addresses(rack: RackView) -> dict[str, str]:
    """Address → host, from the inventory and the hosts' own interfaces (those that only one host has)."""
    owners: dict[str, set[str]] = {}
    for name, variables in mapping(rack.inventory.get("hosts")).items():
        owners.setdefault(str(mapping(variables).get("ansible_host", name)), set()).add(str(name))
    for host in rack.hosts:
        for data in host.section("netdevs").values():
            addresses = mapping(data).get("addresses")
            for address in addresses if isinstance(addresses, list) else []:
                owners.setdefault(str(address).partition("/")[0], set()).add(host.name)
    return {address: names.copy().pop() for address, names in owners.items() if len(names) == 1}


def guard(host: HostView | None) -> tuple[str, list[str]]:
    """(what filters on the host, evidence)."""
    if host is None:
        return "", []
    firewalld = host.section("firewall", "firewalld")
    zones = mapping(firewalld.get("zones"))
    if firewalld.get("active") or zones:
        text = (host.recorded("firewall-cmd") or "").strip()
        shown = [line.rstrip() for line in text.splitlines()][:8]
        return "firewalld", shown or [f"zone {name}: {mapping(zone).get('services')}" for name, zone in zones.items()]
    if host.section("firewall", "ufw").get("active"):
        return "ufw", ["ufw is enabled"]
    ruleset = host.get("firewall", "nftables", "ruleset")
    if isinstance(ruleset, str) and re.search(r"hook input[^}]*policy drop|\breject\b", ruleset):
        drops = [line.strip() for line in ruleset.splitlines() if "policy drop" in line or "reject" in line]
        return "nftables", drops[:3]
    for name in ("iptables_S", "iptables-save", "iptables_L", "iptables_L_n"):
        lines = (host.recorded(name) or "").splitlines()
        drops = [line.strip() for line in lines if _IPTABLES.search(line)]
        if drops:
            return "iptables", drops[:3]
    return "", []


def admits(host: HostView, address: str) -> bool | None:
    """Whether the host lets *address* in on any port; None: not known."""
    zones = host.section("firewall", "firewalld", "zones")
    if not zones:
        ruleset = host.get("firewall", "nftables", "ruleset")
        return False if isinstance(ruleset, str) and _closed(ruleset) else None
    default: bool | None = None
    for name, data in zones.items():
        zone = mapping(data)
        is_open = zone.get("target") == "ACCEPT" or name == "trusted"
        for source in zone.get("sources") or []:
            try:
                if ipaddress.ip_address(address) in ipaddress.ip_network(source, strict=False):
                    return is_open
            except ValueError:
                continue
        if zone.get("interfaces"):
            default = bool(default) or is_open
    return default


# What such a rule accepts is not all TCP of a peer.
_NARROW = re.compile(r'\b(ct state|dport|icmp|icmpv6|igmp|fib|ipv6-icmp)\b|\biif(name)? "?lo"?\b')


def _closed(ruleset: str) -> bool:
    """Whether an input chain drops what it does not name, and names single services only."""
    for table in nft_ruleset.parse(ruleset).value["tables"]:
        chains = dicts(table.get("chains"))
        rules = [str(rule) for chain in chains for rule in chain.get("rules") or []]
        dropping = [chain for chain in chains if chain.get("hook") == "input" and chain.get("policy") == "drop"]
        if dropping and not any(re.search(r"\baccept\b", rule) and not _NARROW.search(rule) for rule in rules):
            return True
    return False


@rack_rule(BLOCKED)
def peers_blocked(rack: RackView) -> t.Iterator[Finding]:
    owner = _addresses(rack)
    reported: set[tuple[str, str]] = set()
    for attempt in failed_connections(rack):
        target = owner.get(attempt.address)
        if target is None or target == attempt.source:
            continue  # an address that several hosts have is a wrong interface, not a firewall
        what, shown = guard(rack.by_name(target))
        if not what and attempt.why.lower() == "connection refused":
            continue  # nobody listened: the peer's process had ended
        reported.add((attempt.source, target))
        port = f" port {attempt.port}" if attempt.port else ""
        yield BLOCKED.on(
            target,
            f"{attempt.source} -> {target}: TCP to {attempt.address}{port} ends with '{attempt.why}'"
            + (f", {what} is active on {target}" if what else f"; a firewall on {target} or between the two")
            + "; all TCP between the members wanted",
            device=what or "firewall",
            evidence=[attempt.line, *shown],
        )
    members = {str(mapping(v).get("ansible_host", n)): str(n) for n, v in mapping(rack.inventory.get("hosts")).items()}
    for host in rack.hosts:
        closed = []
        for address, name in members.items():
            if name != host.name and admits(host, address) is False and (name, host.name) not in reported:
                closed.append(f"{name} ({address})")
        if closed:
            what, shown = guard(host)
            yield BLOCKED.on(
                host,
                f"{host.name}: {what} admits only named services from {', '.join(closed[:4])}"
                f"{' and more' if len(closed) > 4 else ''}; all TCP from the members wanted",
                device=what,
                evidence=shown,
            )


_FOREIGN = re.compile(
    r"\b(DOCKER[\w-]*|KUBE-[\w-]*|CNI-[\w-]*|LIBVIRT_\w+|NETAVARK[\w-]*|cali-[\w-]*|CILIUM_\w+|FLANNEL[\w-]*"
    r"|docker-bridges|kube-proxy|netavark|libvirt_network|f2b-[\w-]*)"
)
_RULES = ("nft_list_ruleset", "nft_list_tables", "iptables_S", "iptables-save", "iptables_t_nat_S", "iptables_L_n")


@rack_rule(TABLES_GONE)
def foreign_rules_gone(rack: RackView) -> t.Iterator[Finding]:
    earlier = mapping(mapping(rack.outputs.get("before")).get("facts"))
    for host in rack.hosts:
        then = HostView(host.name, earlier.get(host.name))
        for name in _RULES:
            before, now = then.recorded(name), host.recorded(name)
            if not before or now is None:
                continue
            gone = sorted(set(_FOREIGN.findall(before)) - set(_FOREIGN.findall(now)))
            if not gone:
                continue
            flush = [line.strip() for line in host.files.get("/etc/nftables.conf", "").splitlines() if "flush" in line]
            yield TABLES_GONE.on(
                host,
                f"{host.name}: {', '.join(gone[:8])}{' and more' if len(gone) > 8 else ''} of the earlier recording "
                f"{'is' if len(gone) == 1 else 'are'} gone from the packet filter; untouched rules of other programs "
                "wanted",
                device=gone[0],
                evidence=[
                    *[f"before: {line.strip()}" for line in before.splitlines() if gone[0] in line][:3],
                    *(f"/etc/nftables.conf: {line}" for line in flush[:1]),
                ],
            )
            break
