"""The firewall lets the rack in, keeps others out, and comes back at boot."""

from __future__ import annotations

import socket

import pytest
from nodes import connect, nodes

CHAIN = "nft list chain inet gpu_fabric input"
UNIT = "systemd-run --quiet --collect --property=RuntimeMaxSec=20"
CONNECT = 'import socket; socket.create_connection(("{address}", {port}), 5)'


def serve(host, port: int) -> None:
    """Have something listen on the port, so that a refusal is the firewall's."""
    host.check_output(f"{UNIT} --unit=listen{port} python3 -m http.server {port}")
    host.check_output(f"until ss -Htln | grep -q ':{port} '; do sleep 0.1; done")


def refused(host) -> int:
    """How many packets no rule has accepted."""
    rule = next(line for line in host.check_output(CHAIN).splitlines() if "what no rule accepts" in line)
    return int(rule.split()[rule.split().index("packets") + 1])


def test_default_is_to_drop(host):
    assert "policy drop" in host.check_output(CHAIN)


def test_boot_loads_it(host):
    assert host.service("gpu-fabric-firewall").is_enabled
    host.check_output("systemctl restart gpu-fabric-firewall")
    assert "policy drop" in host.check_output(CHAIN)


def test_rack_reaches_any_port(host, node):
    """NCCL's bootstrap listens on a port that nobody knows beforehand."""
    serve(host, 40123)
    peer = next(other for other in nodes() if other["name"] != node["name"])
    done = connect(peer).run(f"python3 -c '{CONNECT.format(address=node['address'], port=40123)}'")
    assert done.rc == 0, done.stderr


@pytest.mark.parametrize("port", [5201, 18515])
def test_others_do_not_get_in(host, node, port):
    """The controller administers, so it may use ssh; every other port is closed to it."""
    serve(host, port)
    before = refused(host)
    with pytest.raises(TimeoutError):
        socket.create_connection((node["address"], port), 2)
    assert refused(host) > before
