# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bundles without what identifies a rack."""

from __future__ import annotations

import ipaddress
import itertools
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_diagnose import diagnose
from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_redact import packed, redact
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.vpd import decode
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


def write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write(tmp_path, FILES)
    (tmp_path / "node-a/root/link").symlink_to("etc/node-a.conf")
    (tmp_path / "node-a/root/vpd").write_bytes(b"\x82\x00SN\x0d1652923012345\x00\xff")
    return tmp_path


def whole(bundle: Path) -> str:
    said = [path.relative_to(bundle).as_posix() for path in bundle.rglob("*")]
    said += [str(path.readlink()) for path in bundle.rglob("*") if path.is_symlink()]
    return "\n".join(said + [path.read_text("latin-1") for path in bundle.rglob("*") if path.is_file()])


def made(files: dict[str, str], names: tuple[str, ...] = (), secret: bytes = SECRET) -> dict[str, str]:
    """Every text after all of them were learned."""
    redactor = Redactor(names, (), secret)
    for path, text in files.items():
        redactor.learn(path, text.encode("latin-1"))
    return {path: redactor.data(text.encode("latin-1"), path).decode("latin-1") for path, text in files.items()}


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
    packed_address = ipaddress.IPv4Address(address).packed.hex()
    assert f"ffff:{packed_address[:4]}:{packed_address[4:]}\t{address}" in gids
    dashed = (bundle / "host-001/root/sys/class/infiniband/mlx5_0/node_guid").read_text().strip()
    assert f"0x{dashed.replace(':', '')}" in (bundle / "host-001/ibstat.txt").read_text()
    # The GUID, the hardware address and the interface identifier of one port still fit each other.
    mac = re.search(r"ether (\S+)", (bundle / "host-001/ip_addr.txt").read_text())[1]
    assert mac.replace(":", "")[6:] == dashed.replace(":", "")[10:]
    assert f"ff:fe{mac[9:11]}:{mac[12:14]}{mac[15:]}" in (bundle / "host-001/ip_addr.txt").read_text()


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
        "169.254.3.4/16 fe80::/64 ff02::1 224.0.0.1 239.1.2.3 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 255.255.240.0",
        "CapEff:\t000001fffeffffff\nSigBlk:\t7be3c0fe28014a03\nSigCgt:\t00000001000004ec\nShdPnd:\t0000000000010000",
        "kernel.tainted = 12289 srcversion: 533BB7E5866E52F63B9ACCB cksum 3f786850e387550fdab836ed7e6dc881de23001b",
        "cpumask ffffffff,00000000,0000ffff pfc 0x0000000000000008 port_cap_flags: 0x2651e84a max_mr_size: "
        "0xffffffffffffffff page_size_cap: 0xfffffffffffff000 device_cap_flags_ex: 0x30000051425321c3",
        "rx_bytes: 1234567890123456 port_rcv_data: 9812345678901234 symbol 0xdeadbeefdeadbeef",
        "00: de 10 30 23 06 05 10 00 a1 00 02 03 00 00 00 00 3f786850e387550fdab836ed7e6dc881",
        "sig_key: 5B:2F:60:0A:17:F4:3C:11:AA:0D:77:FA:9E:3B:11:22:33:44:55:66 10de:2330:10de:16c1",
        "brd 00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff 01:00:5e:00:00:01 33:33:00:00:00:01",
        "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "std::vector abc::def 24-06-20-12-30-45 0x10de 0000:c1:00.0",
    ],
)
def test_what_is_no_identity_stays(text: str) -> None:
    assert MADE.text(text) == text


NETWORKS = st.builds(
    lambda value, length: ipaddress.ip_network((value, length), strict=False),
    st.one_of(
        st.integers(10 << 24, (11 << 24) - 1),
        st.integers(0x0AE00000, 0x0AEFFFFF),
        st.integers(0xAC100000, 0xAC1FFFFF),
        st.integers(0xC0A80000, 0xC0A8FFFF),
        st.integers(1 << 24, (224 << 24) - 1),
    ),
    st.integers(8, 32),
)
FIXED = [
    ipaddress.ip_network(net)
    for net in ("127.0.0.0/8", "169.254.0.0/16", "172.17.0.0/16", "192.168.122.0/24", "172.16.0.0/12", "100.64.0.0/10")
]
FIXED += [ipaddress.ip_network(net) for net in ("10.0.0.0/8", "192.168.0.0/16", "10.224.0.0/12")]


def relation(one, other) -> tuple[bool, bool]:
    return one.subnet_of(other), other.subnet_of(one)


@settings(max_examples=100, deadline=None)
@given(st.lists(NETWORKS, min_size=1, max_size=8), st.binary(min_size=1, max_size=4))
def test_networks_keep_to_lie_in_each_other_or_apart(networks, secret) -> None:
    redactor = Redactor((), (), secret)
    redactor.networks.border("10.224.0.0/12")
    redactor.learn("a.txt", " ".join(map(str, networks)).encode())
    fresh = [ipaddress.ip_network(redactor.text(str(net))) for net in networks]
    for (old, new), (other_old, other_new) in itertools.combinations(
        [*zip(networks, fresh, strict=True), *((net, net) for net in FIXED)], 2
    ):
        assert relation(old, other_old) == relation(new, other_new), (old, other_old, new, other_new)


@settings(max_examples=60, deadline=None)
@given(st.integers(0x20010DB8 << 96, (0x20010DB9 << 96) - 1), st.integers(16, 64), st.integers(0, (1 << 112) - 1))
def test_subnets_of_ipv6_stay_subnets(number: int, length: int, other: int) -> None:
    network = ipaddress.ip_network((number, length), strict=False)
    member = ipaddress.IPv6Address(int(network.network_address) | other & int(network.hostmask))
    assert ipaddress.ip_address(MADE.text(str(member))) in ipaddress.ip_network(MADE.text(str(network)))


@pytest.mark.parametrize("number", range(40))
def test_the_networks_of_a_rack_are_others_under_any_secret(number: int) -> None:
    text = "elements = { 10.89.2.11-10.89.2.12, 10.89.2.0/24, 10.224.0.0/21 } 10.224.7.12/24 192.168.9.4"
    redactor = Redactor((), (), bytes([number]))
    redactor.networks.keep_inside("10.224.0.0/12")
    redactor.learn("nft_list_ruleset.txt", text.encode())
    fresh = redactor.text(text)
    assert not re.search(r"10\.89\.2\.|10\.224\.|192\.168\.9\.", fresh), fresh
    first, last, admin, rails, rail = re.search(
        r"{ (\S+)-(\S+), (\S+), (\S+) } (\S+)", fresh
    ).groups()  # fmt: skip
    assert int(ipaddress.ip_address(last)) - int(ipaddress.ip_address(first)) == 1
    assert ipaddress.ip_address(first) in ipaddress.ip_network(admin)
    pool = ipaddress.ip_network((rails.partition("/")[0], 12), strict=False)
    assert not ipaddress.ip_network(admin).overlaps(pool)
    # The eighth rail is still the eighth.
    assert str(pool.network_address + (7 << 8) + 12) == rail.partition("/")[0]


def test_a_range_over_networks_is_the_same_set_of_networks() -> None:
    fresh = made({"nft.txt": "10.20.0.0-10.20.5.255 10.20.3.0/24 10.20.6.0/24"})["nft.txt"]
    ranges = [tuple(map(ipaddress.ip_address, part)) for part in re.findall(r"(\d[\d.]+)-(\d[\d.]+)", fresh)]
    inside, outside = (ipaddress.ip_network(net) for net in re.findall(r"\S+/24", fresh))
    assert sum(int(last) - int(first) + 1 for first, last in ranges) == 6 * 256
    assert any(first <= inside[0] and inside[255] <= last for first, last in ranges)
    assert not any(first <= outside[0] <= last for first, last in ranges)


def test_a_pool_that_the_intent_leaves_open_is_written_down(tmp_path: Path) -> None:
    files = {
        "vars.yml": "gpu_fabric_admin_networks:\n- 10.89.2.0/24\n",
        "n1/ip_addr.txt": "2: e1: <UP> mtu 9000 state UP\n    inet 10.224.3.11/24 scope global e1\n",
    }
    for number in range(8):
        folder = write(tmp_path / str(number), files)
        redact(folder, ["n1"], bytes([number]))
        said = yaml.safe_load((folder / "vars.yml").read_text())
        pool = ipaddress.ip_network(said["gpu_fabric_rail_ipv4"])
        assert pool.prefixlen == 12
        address = re.search(r"inet (\S+)/24", (folder / "host-001/ip_addr.txt").read_text())[1]
        assert address == str(pool.network_address + (3 << 8) + 11)
        assert not ipaddress.ip_network(said["gpu_fabric_admin_networks"][0]).overlaps(pool)
        assert "RF-INTENT-REFUSED" not in {f["id"] for f in diagnose(folder)["findings"]}


# --- every notation --------------------------------------------------------------------------------------


def notations_of_mac(digits: str) -> list[str]:
    pairs = re.findall("..", digits)
    words = re.findall("....", digits)
    return [
        ":".join(pairs),
        ":".join(pairs).upper(),
        "-".join(pairs),
        f"enx{digits}",
        ".".join(words),
        f"Base MAC: {digits}",
        f"8000.{digits}",
        f'"8000.{":".join(pair.lstrip("0") or "0" for pair in pairs)}"',
        f"01:00:01:2c:ab:cd:ef:{':'.join(pairs)}",
        f"33:33:ff:{':'.join(pairs[3:])}",
        f"fe80::{int(pairs[0], 16) ^ 2:02x}{pairs[1]}:{pairs[2]}ff:fe{pairs[3]}:{pairs[4]}{pairs[5]}",
        f"fe80::{int(pairs[0], 16) ^ 2:02x}{pairs[1]}:{pairs[2]}ff:fe{pairs[3]}:{pairs[4]}{pairs[5]}%eth0: icmp_seq=1",
        f"ff02::1:ff{pairs[3]}:{pairs[4]}{pairs[5]}",
    ]


def notations_of_guid(digits: str) -> list[str]:
    pairs, words = re.findall("..", digits), re.findall("....", digits)
    return [
        f"0x{digits}",
        f"0x{digits.upper()}",
        digits,
        ":".join(words),
        ".".join(words),
        ":".join(pairs),
        "-".join(pairs),
        f"{digits[:8]}:{digits[8:]}",
        f'"H-{digits}"[1]({digits})',
        f"caguid=0x{digits}({digits})",
        f"fe80:0000:0000:0000:{':'.join(words)}",
        f"fe80::{':'.join(words)}",
        f"fe80000000000000{digits}",
        f"80:00:00:48:fe:80:00:00:00:00:00:00:{':'.join(pairs)}",
    ]


def notations_of_ipv4(address: ipaddress.IPv4Address, network: ipaddress.IPv4Network) -> list[str]:
    text, digits = str(address), address.packed.hex()
    octets = text.split(".")
    return [
        text,
        f"{text}/24",
        f"addr:{text}",
        f"{text}:4791 [{text}]:22 ({text}) <{text}> {text}, {text}. =%s={text}" % "x",
        f"elements = {{ {text}-{network[-2]}, {network} }}",
        f"::ffff:{text}",
        f"::ffff:{digits[:4]}:{digits[4:]}",
        f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}",
        f"00000000000000000000ffff{digits}",
        f"0x{digits}",
        address.packed[::-1].hex().upper(),
        f"{'.'.join(octets[::-1])}.in-addr.arpa",
        f"{'.'.join(octets[2::-1])}.in-addr.arpa",
        f"ip-{'-'.join(octets)}.internal",
        ".".join(octet.zfill(3) for octet in octets),
        f"{'.'.join(octets[:3])}.* {'.'.join(octets[:3])}.[1:9]",
        f"http://{text}:8080/x ip={text}::{network[1]}:255.255.255.0:h:e:off",
    ]


def notations_of_name(name: str) -> list[str]:
    return [
        name,
        name.upper(),
        f"{name}.dc1.rack.test",
        f"root@{name}:~# ibstat",
        f"[root@{name} ~]# ibstat",
        f"{name}:71:93 [0] NCCL INFO x",
        f"Nov 30 12:00:00 {name} kernel: x",
        f'"{name} mlx5_0"',
        "search dc1.rack.test",
        f"{name}: x",
    ]


HEX = "0123456789abcdef"
TAILS = st.lists(st.text(HEX, min_size=6, max_size=6), min_size=2, max_size=5, unique_by=lambda tail: tail[:5])
SPELLED = "fabric.txt"


@settings(max_examples=60, deadline=None)
@given(
    TAILS,
    st.sampled_from(["b83fd2", "9c63c0", "fc6a1c"]),
    st.integers(0x0A000001, 0x0AFFFFFE),
    st.sampled_from(["gpu-r07-01", "c1", "NODE_X1", "sm-4.dc1.rack.test", "a-7"]),
    st.uuids(),
    st.integers(10**12, 10**13 - 1),
    st.binary(min_size=1, max_size=4),
)
def test_no_notation_of_an_identity_is_left(tails, vendor, number, name, uuid, serial, secret) -> None:
    network = ipaddress.ip_network((number, 24), strict=False)
    address = ipaddress.IPv4Address(int(network[0]) + 1 + number % 250)
    macs = [vendor + tail for tail in tails if tail.strip("0") and tail.strip("f")]
    guids = [vendor + "0300" + tail for tail in tails if tail.strip("0") and tail.strip("f")]
    short = name.partition(".")[0]
    uuid_digits = uuid.hex if uuid.int else "1" * 32
    dashed = f"{uuid_digits[:8]}-{uuid_digits[8:12]}-{uuid_digits[12:16]}-{uuid_digits[16:20]}-{uuid_digits[20:]}"
    told = {
        "n/ip_addr.txt": f"inet {address}/24\n"
        + "".join(f"link/ether {':'.join(re.findall('..', m))}\n" for m in macs),
        "n/ibstat.txt": "".join(f"Node GUID: 0x{guid}\n" for guid in guids),
        "n/root/etc/machine-id": f"{uuid_digits}\n",
        "n/nvidia-smi_q.txt": f"    GPU UUID : GPU-{dashed}\n    Serial Number : {serial}\n",
        "n/dmidecode.txt": "\tSerial Number: S4XWNX0R9\n\tAsset Tag: RK-0117\n",
    }
    lines = [text for mac in macs for text in notations_of_mac(mac)]
    lines += [text for guid in guids for text in notations_of_guid(guid)]
    lines += notations_of_ipv4(address, network)
    lines += [
        dashed,
        dashed.upper(),
        uuid_digits,
        f"MIG-{dashed}",
        str(serial),
        "s4xwnx0r9",
        "disk_S4XWNX0R9",
        "RK-0117",
    ]
    files = {**told, SPELLED: "\n".join(lines) + "\n", "names.txt": "\n".join(notations_of_name(short)) + "\n"}
    fresh = made(files, (name, "gpu-9.dc1.rack.test"), secret)
    text = "\n".join(fresh.values()).lower()
    wanted = {mac: mac for mac in macs} | {guid: guid for guid in guids}
    squeezed = re.sub("[:.-]", "", text)
    assert not [digits for digits in wanted if digits in squeezed]
    for mac in macs:
        assert f"{mac[6:8]}:{mac[8:10]}:{mac[10:]}" not in text
        assert f':{":".join(f"{int(mac[at : at + 2], 16):x}" for at in (6, 8, 10))}"' not in text
        assert f"fe{mac[6:8]}:{mac[8:]}" not in text and f"ff{mac[6:8]}:{mac[8:]}" not in text
    octets = str(address).split(".")
    for secret_text in (
        re.escape(".".join(octets[:3])) + r"\.",
        re.escape(".".join(octets[2::-1])) + r"\.in-addr",
        re.escape("-".join(octets)),
        address.packed.hex(),
        address.packed[::-1].hex(),
        f"{address.packed.hex()[:4]}:{address.packed.hex()[4:]}",
        re.escape(".".join(octet.zfill(3) for octet in octets)),
    ):
        assert not re.search(rf"(?<![0-9a-f.]){secret_text}", text), secret_text
    assert short.lower() not in fresh["names.txt"].lower()
    for secret_text in (dashed, uuid_digits, str(serial), "s4xwnx0r9", "rk-0117", "rack.test"):
        assert secret_text not in text.replace("node-000", ""), secret_text


def test_addresses_in_tables_of_the_kernel(tmp_path: Path) -> None:
    files = {
        "n/ip_addr.txt": "inet 10.7.3.9/20\nlink/ether b8:3f:d2:aa:bb:cc\n",
        "n/root/proc/71/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"
        "e1\t00000000\t0103070A\t0003\t0\t0\t0\t00000000\t0\ne1\t0000070A\t00000000\t0001\t0\t0\t0\t00F0FFFF\t0\n",
        "n/root/proc/71/net/tcp": "  0: 0903070A:0016 0A03070A:9C40 01\n",
        "n/root/proc/71/net/tcp6": "  0: 0000000000000000FFFF00000903070A:0016 "
        "00000000000000000000000000000000:0000 0A\n",
        "n/root/proc/net/if_inet6": "fe80000000000000ba3fd2fffeaabbcc 02 40 20 80 e1\n"
        "fd00000700030000ba3fd2fffeaabbcc 02 40 00 80 e1\n00000000000000000000000000000001 01 80 10 80 lo\n",
        "n/root/proc/net/arp": "10.7.3.10 0x1 0x2 b8:3f:d2:aa:bb:cd * e1\n",
        "n/root/proc/net/dev_mcast": "2    e1   1     0     3333ffaabbcc\n2    e1   1     0     01005e000001\n",
    }
    fresh = made(files)
    address = ipaddress.ip_interface(re.search(r"inet (\S+)", fresh["n/ip_addr.txt"])[1])
    lines = [line.split("\t") for line in fresh["n/root/proc/71/net/route"].splitlines()]
    assert lines[1][1] == "00000000" and ipaddress.ip_address(bytes.fromhex(lines[1][2])[::-1]) in address.network
    assert ipaddress.ip_address(bytes.fromhex(lines[2][1])[::-1]) == address.network[0]
    assert lines[2][7] == "00F0FFFF"
    word = address.ip.packed[::-1].hex().upper()
    assert f" {word}:0016" in fresh["n/root/proc/71/net/tcp"]
    assert f"FFFF0000{word}:0016" in fresh["n/root/proc/71/net/tcp6"]
    mac = re.search(r"ether (\S+)", fresh["n/ip_addr.txt"])[1].replace(":", "")
    table = fresh["n/root/proc/net/if_inet6"].splitlines()
    assert table[0].startswith(f"fe80000000000000ba3fd2fffe{mac[6:]} ")
    assert table[1].startswith("fd00") and not table[1].startswith("fd00000700030000") and mac[6:] in table[1]
    assert table[2].startswith("00000000000000000000000000000001 ")
    assert (
        f"3333ff{mac[6:]}" in fresh["n/root/proc/net/dev_mcast"]
        and "01005e000001" in fresh["n/root/proc/net/dev_mcast"]
    )


def test_masks_of_a_process_are_no_guids_even_beside_one() -> None:
    status = "Name:\tsystemd\nCapEff:\t000001ffffffffff\nSigCgt:\t7fe3c0fe28014a03\n"
    fresh = made({"n/root/proc/1/status": status, "n/ibstat.txt": "Node GUID: 0x7fe3c00300014a03\n"})
    assert fresh["n/root/proc/1/status"] == status
    assert "7fe3c00300014a03" not in fresh["n/ibstat.txt"]


def test_names_of_what_hangs_on_a_subnet() -> None:
    files = {
        "ibnetdiscover.txt": 'switchguid=0xfc6a1c0300aa0040(fc6a1c0300aa0040)\nSwitch\t65 "S-fc6a1c0300aa0040"\t\t# '
        '"MF0;leaf-a7:MQM9700/U1" enhanced port 0 lid 2 lmc 0\n[17]\t"H-b8cef60300000a10"[1](b8cef60300000a11) \t\t# '
        '"store-04 HCA-1" lid 12 4xNDR\n[3]\t"H-b8cef60300000b10"[1](b8cef60300000b11) \t\t# "Quantum Mellanox '
        'Technologies" lid 9 4xNDR\n[4]\t"S-b8cef60300000c10"[1] \t\t# "Hall 3 row B" lid 9 4xNDR\n',
        "n/dmesg.txt": "leaf-a7 and store-04 at fc6a:1c03:00aa:0040\n",
    }
    fresh = made(files, ("n",))
    text = "\n".join(fresh.values())
    for secret in ("leaf-a7", "store-04", "fc6a1c0300aa0040", "fc6a:1c03:00aa:0040", "b8cef60300000a1", "Hall 3"):
        assert secret not in text
    assert '"MF0;node-' in text and ':MQM9700/U1"' in text and "Quantum Mellanox Technologies" in text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpu-r1-[01-02] up", "host-001,host-002 up"),
        ("GPU-R1-01.Dc1.Corp.Test, corp.test", "host-001.example.invalid, example.invalid"),
        ("c1:00.0 VGA, 0000:c1:00.0, b8:3f:c1:aa:bb:01, fd00::c1", None),
        ("c1:7:9 [0] NCCL INFO", "host-003:7:9 [0] NCCL INFO"),
        ("bad_name", "host_004"),
    ],
)  # fmt: skip
def test_names(text: str, wanted: str | None) -> None:
    names = Redactor(["gpu-r1-01.dc1.corp.test", "gpu-r1-02", "c1", "bad_name"], (), SECRET).names
    order = {name: names.aliases[name] for name in ("gpu-r1-01", "gpu-r1-02", "c1", "bad_name")}
    assert len(set(order.values())) == 4
    if wanted is not None:
        swap = {"host-003": order["c1"], "host-001": order["gpu-r1-01"], "host-002": order["gpu-r1-02"]}
        wanted = re.sub(r"host-00\d", lambda m: swap[m[0]], wanted).replace("host_004", order["bad_name"])
    assert names.replace(text) == (text if wanted is None else wanted)


def test_names_of_mirrors_are_replaced_and_those_of_the_world_stay() -> None:
    files = {
        "vars.yml": "url: https://mirror.corp.test/cuda\n",
        "n/root/etc/apt/sources.list.d/cuda.list": "deb https://developer.download.nvidia.com/cuda/x /\n"
        "# mirror.corp.test\n",
        "n/root/var/lib/dpkg/status": "Homepage: https://wiki.example.org/x\nDescription: a mirror\n",
    }
    fresh = made(files, ("n",))
    assert fresh["vars.yml"] == "url: https://node-001.example.invalid/cuda\n"
    assert "developer.download.nvidia.com" in fresh["n/root/etc/apt/sources.list.d/cuda.list"]
    assert "corp" not in fresh["n/root/etc/apt/sources.list.d/cuda.list"]
    assert fresh["n/root/var/lib/dpkg/status"] == files["n/root/var/lib/dpkg/status"]


def test_two_hosts_of_one_short_name_stay_two() -> None:
    names = Redactor(["gpu-01.a.test", "gpu-01.b.test"], (), SECRET).names
    assert names.replace("gpu-01.a.test") != names.replace("gpu-01.b.test")
    assert "gpu" not in names.replace("gpu-01.a.test gpu-01.b.test gpu-01")


def test_names_of_files_and_what_refers_to_them(tmp_path: Path) -> None:
    bundle = write(
        tmp_path,
        {
            "n-1/ping_10.7.3.9.txt": "x\n",
            "n-1/ping_n-2.txt": "x\n",
            "n-1/ethtool_enxb83fd2aabbcc.txt": "x\n",
            "n-1/commands.json": '{"ping_n-2.txt": {"argv": ["ping", "n-2"]}, "ping_10.7.3.9.txt": {}}',
            "n-1/ip_addr.txt": "inet 10.7.3.9/24\nlink/ether b8:3f:d2:aa:bb:cc\n",
            "n-1/root/proc/9/cmdline": "ib_write_bw\0-d\0mlx5_0\x0010.7.3.9\0n-2\0",
            "n-2/apt_update.txt": "Err:1 http://10.7.3.9:8080/cuda  InRelease\nlibx 1.2.3.4-1 all\n",
        },
    )
    redact(bundle, ["n-1", "n-2"], SECRET)
    text = whole(bundle)
    assert not [secret for secret in ("10.7.3.9", "n-1", "n-2", "b83fd2aabbcc") if secret in text]
    assert "1.2.3.4-1" in text
    listed = yaml.safe_load((bundle / "host-001/commands.json").read_text())
    assert all((bundle / "host-001" / name).is_file() for name in listed)


def test_a_host_that_is_called_as_a_folder_of_the_kernel(tmp_path: Path) -> None:
    write(tmp_path, {"vm/root/proc/sys/vm/swappiness": "10\n", "vm/root/etc/hostname": "vm\n", "vm/sysctl_a.txt":
                     "vm.swappiness = 10\n", "vm/nccl.log": "vm:7:9 [0] NCCL INFO x\n"})  # fmt: skip
    redact(tmp_path, ["vm"], SECRET)
    assert (tmp_path / "host-001/root/proc/sys/vm/swappiness").is_file()
    assert (tmp_path / "host-001/sysctl_a.txt").read_text() == "vm.swappiness = 10\n"
    assert (tmp_path / "host-001/nccl.log").read_text().startswith("host-001:7")


def test_what_is_no_text(tmp_path: Path) -> None:
    guid = bytes.fromhex("b83fd20300aabbcc")
    config = bytes(0x100) + b"\x03\x00\x01\x00" + guid[::-1] + bytes(64)
    fields = b"PN\x04MCX7SN\x0cMT2243X00001V3\x20" + b"c0ffee00" * 4
    vpd = b"\x82\x04\x00Card\x90" + len(fields).to_bytes(2, "little") + fields + b"\x78\x00\x00"
    write(tmp_path, {"n/ibstat.txt": "Node GUID: 0xb83fd20300aabbcc\n"})
    write(tmp_path, {"n/lspci_vvv.txt": "\t\t\t[SN] Serial number: MT2243X00001\n\t\t\t[V3] Vendor specific: "
                     + "c0ffee00" * 4 + "\n"})  # fmt: skip
    (tmp_path / "n/config").write_bytes(config)
    (tmp_path / "n/vpd").write_bytes(vpd)
    redact(tmp_path, ["n"], SECRET)
    fresh = (tmp_path / "host-001/config").read_bytes()
    told = re.search("0x([0-9a-f]{16})", (tmp_path / "host-001/ibstat.txt").read_text())[1]
    assert fresh == config.replace(guid[::-1], bytes.fromhex(told)[::-1]) != config
    data = decode((tmp_path / "host-001/vpd").read_bytes())
    assert data["product_name"] == "Card" and data["part_number"] == "MCX7"
    assert data["serial"] != "MT2243X00001" and "c0ffee00" not in data["keywords"]["V3"]


def test_what_cannot_be_looked_into_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"n/logs.tar.gz": "x", "n/a.txt": "x"})
    assert packed(tmp_path) == ["n/logs.tar.gz"]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_contents(data: bytes) -> None:
    assert MADE.data(data) == MADE.data(data)
