# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand-ins of InfiniBand: P_Key tables, opensm's partitions, and what `ip` says of ib_ipoib's interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from railyard_lab import ipoib
from railyard_lab.tools import ip, opensm

PARTITIONS = """# by somebody
Default=0x7fff, ipoib, mtu=5 : ALL=full ;
storage=0x0005, ipoib, mtu=5 : {member}=full, SELF=full ;
"""


@pytest.fixture
def node(make_host):
    """A host with InfiniBand rails and no subnet manager."""
    host = make_host("hgx_h100_ib", tree=True)
    host.change(lambda state: (state["sm"].update(lid=0), state["modules"].extend(["ib_umad", "ib_ipoib"])))
    return host


def keys(host, rdma: str) -> list[str]:
    folder = host.root / f"sys/class/infiniband/{rdma}/ports/1/pkeys"
    return [(folder / str(slot)).read_text().strip() for slot in range(len(list(folder.iterdir())))]


def sweep(host, text: str, tmp_path: Path) -> None:
    (tmp_path / "partitions.conf").write_text(text)
    opensm.sweep({"partition_config_file": str(tmp_path / "partitions.conf")}, f"0x{host.nic('mlx5_0')['node_guid']}")


def test_opensm_brings_ports_up_and_gives_members_their_keys(node, tmp_path):
    member, manager = node.nic("mlx5_5"), node.nic("mlx5_0")
    sweep(node, PARTITIONS.format(member=f"0x{member['node_guid']}"), tmp_path)
    assert keys(node, "mlx5_0")[:3] == keys(node, "mlx5_5")[:3] == ["0xffff", "0x8005", "0x0000"]
    assert keys(node, "mlx5_3")[:2] == ["0xffff", "0x0000"]
    assert node.state["sm"]["lid"] == manager["lid"]
    state = (node.root / "sys/class/infiniband/mlx5_0/ports/1/state").read_text()
    assert state == "4: ACTIVE\n"


def test_key_that_goes_leaves_a_hole_and_the_others_keep_their_places(node, tmp_path):
    every = "a=0x1, ipoib : ALL=full ;\nb=0x2, ipoib : ALL=full ;\nDefault=0x7fff : ALL=full ;\n"
    sweep(node, every, tmp_path)
    first = keys(node, "mlx5_3")[:3]
    assert set(first) == {"0xffff", "0x8001", "0x8002"} and first[0] == "0xffff"
    sweep(node, every.replace("a=0x1", "# a=0x1"), tmp_path)
    assert keys(node, "mlx5_3")[:3] == ["0x0000" if key == "0x8001" else key for key in first]


def test_interface_has_a_carrier_only_with_an_active_port_and_its_key(node):
    state = node.state
    assert not ipoib.joined(state, "ibp24s0")
    state["sm"]["lid"] = 1
    state["ipoib"]["ibp24s0.8005"] = {"parent": "ibp24s0", "pkey": "0x8005", "mode": "datagram"}
    assert ipoib.joined(state, "ibp24s0") and not ipoib.joined(state, "ibp24s0.8005")
    ipoib.ports(state)["ibp24s0"]["pkeys"] = ["0xffff", "0x0005"]
    assert ipoib.joined(state, "ibp24s0.8005"), "a limited member joins as well"


def test_ip_shows_what_ib_ipoib_shows(node):
    state = node.state
    state["ipoib"]["ibp24s0.8005"] = {"parent": "ibp24s0", "pkey": "0x8005", "mode": "datagram"}
    plain = {"ifname": "ibp24s0.8005", "link": "ibp24s0", "flags": ["UP", "LOWER_UP"], "operstate": "UP", "mtu": 4092}
    shown = ip._as_infiniband(state, {**plain, "linkinfo": {"info_kind": "macvlan"}, "link_type": "ether"}, True)
    assert shown["linkinfo"]["info_data"] == {"key": "0x8005", "mode": "datagram", "umcast": "0000"}
    assert (shown["link_type"], shown["link"], shown["operstate"]) == ("infiniband", "ibp24s0", "DOWN")
    assert len(shown["address"].split(":")) == len(shown["broadcast"].split(":")) == 20
    assert shown["flags"] == ["NO-CARRIER", "UP"] and ":80:05:" in shown["broadcast"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("link add link enp41s0f0np0 name x type ipoib pkey 0x8001", "Invalid argument"),
        ("link add link ibp24s0 name x type ipoib pkey 0x8000", "Invalid argument"),
        ("link add link ibp24s0 name x type ipoib pkey 0xffff", "Name not unique on network"),
        ("link add link ibp24s0 name x type ipoib pkey 0x8001 mode connected", "Invalid argument"),
        ("link set dev ibp24s0 type ipoib mode connected", "Invalid argument"),
        ("link set dev ibp24s0 mtu 65520", "Invalid argument"),
    ],
)
def test_ip_refuses_what_the_kernel_refuses(node, words, said):
    answer = node.run("ip", *words.split())
    assert answer.rc == 2 and answer.err == f"RTNETLINK answers: {said}\n"
