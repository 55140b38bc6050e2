# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bundles without what identifies a rack."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_diagnose import diagnose
from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_redact import redact
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.redaction import Redactor

SECRET = b"0" * 32
MADE = Redactor(["node-a", "node-b.site.example.net", "10.7.3.9"], {"1652923012345"}, SECRET)
FILES = {
    "inventory.ini": "[gpu]\nnode-a ansible_host=10.7.3.9\nnode-b ansible_host=10.7.3.10\n",
    "nccl.log": "node-b:7:9 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.7.3.9<38213> failed : "
    "Connection timed out\n",
    "node-a/root/etc/hostname": "node-a\n",
    "node-a/root/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "node-a/ip_addr.txt": "2: ens1np0: <BROADCAST,UP,LOWER_UP> mtu 9000 state UP\n    link/ether b8:3f:d2:aa:bb:cc brd "
    "ff:ff:ff:ff:ff:ff\n    inet 10.7.3.9/24 brd 10.7.3.255 scope global ens1np0\n"
    "    inet6 fe80::ba3f:d2ff:feaa:bbcc/64\n    bridge_id 8000.b8:3f:d2:aa:bb:cc\n",
    "node-a/show_gids.txt": "DEV\tPORT\tINDEX\tGID\tIPv4\tVER\tDEV\n---\t----\t-----\t---\t----\t---\t---\n"
    "mlx5_0\t1\t0\tfe80:0000:0000:0000:ba3f:d2ff:feaa:bbcc\t\tv2\tens1np0\n"
    "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a07:0309\t10.7.3.9\tv2\tens1np0\n",
    "node-a/ibstat.txt": "CA 'mlx5_0'\n\tNode GUID: 0xb83fd20300aabbcc\n",
    "node-a/root/sys/class/infiniband/mlx5_0/node_guid": "b83f:d203:00aa:bbcc\n",
    "node-a/nft_list_ruleset.txt": "table inet f {\n\tchain input {\n\t\ttype filter hook input priority 0; policy "
    "drop;\n\t\ttcp dport 22 accept\n\t}\n}\n",
    "node-a/nvidia-smi_q.txt": "    Serial Number                         : 1652923012345\n    GPU UUID : "
    "GPU-01234567-89ab-cdef-0123-456789abcdef\n",
    "node-a/ping_node-b.txt": "PING node-b (10.7.3.10)\n",
    "node-b/uname_r.txt": "6.8.0-60-generic\n",
}
SECRETS = ("node-a", "node-b", "10.7.3.", "0a07:0309", "b8:3f:d2:aa:bb:cc", "aabbcc", "00aa:bbcc", "feaa:bbcc")
SECRETS += ("1652923012345", "01234567-89ab", "0123456789abcdef")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "node-a/root/link").symlink_to("etc/node-a.conf")
    (tmp_path / "node-a/root/vpd").write_bytes(b"\x82\x00SN\x0d1652923012345\x00\xff")
    return tmp_path


def whole(bundle: Path) -> str:
    said = [path.relative_to(bundle).as_posix() for path in bundle.rglob("*")]
    said += [str(path.readlink()) for path in bundle.rglob("*") if path.is_symlink()]
    return "\n".join(said + [path.read_text("latin-1") for path in bundle.rglob("*") if path.is_file()])


def test_nothing_identifies_the_rack_any_more(bundle: Path) -> None:
    assert redact(bundle, ["node-a", "node-b"], SECRET) > 0
    text = whole(bundle)
    assert not [secret for secret in SECRETS if secret in text]
    assert sorted(path.name for path in bundle.iterdir() if path.is_dir()) == ["host-001", "host-002"]
    assert (bundle / "host-001/ping_host-002.txt").is_file()
    assert (bundle / "host-001/root/vpd").read_bytes()[:5] == b"\x82\x00SN\x0d"
    assert len((bundle / "host-001/root/vpd").read_bytes()) == 20


def test_the_same_original_is_the_same_everywhere(bundle: Path) -> None:
    redact(bundle, ["node-a", "node-b"], SECRET)
    address = (bundle / "inventory.ini").read_text().splitlines()[1].partition("=")[2]
    assert f"inet {address}/24" in (bundle / "host-001/ip_addr.txt").read_text()
    gids = (bundle / "host-001/show_gids.txt").read_text()
    packed = ipaddress.IPv4Address(address).packed.hex()
    assert f"ffff:{packed[:4]}:{packed[4:]}\t{address}" in gids
    dashed = (bundle / "host-001/root/sys/class/infiniband/mlx5_0/node_guid").read_text().strip()
    assert f"0x{dashed.replace(':', '')}" in (bundle / "host-001/ibstat.txt").read_text()


def test_what_is_wrong_is_still_found(bundle: Path) -> None:
    before = diagnose(bundle)["findings"]
    redact(bundle, ["node-a", "node-b"], SECRET)
    after = diagnose(bundle)["findings"]
    assert [(f["id"], f["severity"]) for f in after] == [(f["id"], f["severity"]) for f in before]
    assert "RF-FIREWALL-BLOCKS-PEERS" in {f["id"] for f in after}


@pytest.mark.parametrize(
    "text",
    [
        "mlx5_core 0000:17:00.0: limited by 16.0 GT/s PCIe x4 link at 0000:16:01.0",
        "2024-06-20 12:30:45 [10de:22a3] 0x0000000000000000 ffff:ffff:ffff:ffff 127.0.0.1/8 ::1/128 172.17.0.1/16",
        "MLNX_OFED_LINUX-24.10-1.1.4.0: fw 28.39.1002 driver 570.133.20 1.2.3.4.5",
        "lo UNKNOWN 127.0.0.1/8 255.255.255.0 0.0.0.0/0 fe80000000000000 ff:ff:ff:ff:ff:ff",
    ],
)
def test_what_is_no_identity_stays(text: str) -> None:
    assert MADE.text(text) == text


@settings(max_examples=60, deadline=None)
@given(st.integers(1 << 24, (224 << 24) - 1), st.integers(8, 32), st.integers(0, (1 << 32) - 1))
def test_subnets_stay_subnets(number: int, length: int, other: int) -> None:
    network = ipaddress.ip_network((number, length), strict=False)
    member = ipaddress.IPv4Address(int(network.network_address) | other & int(network.hostmask))
    made = ipaddress.ip_network(MADE.text(str(network)))
    kept = [ipaddress.ip_network(net) for net in ("127.0.0.0/8", "169.254.0.0/16", "172.17.0.0/16", "192.168.122.0/24")]
    if not any(network.overlaps(other) for other in kept):
        assert ipaddress.ip_address(MADE.text(str(member))) in made


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_contents(data: bytes) -> None:
    assert MADE.data(data) == MADE.data(data)
