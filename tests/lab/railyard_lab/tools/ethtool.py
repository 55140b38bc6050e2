# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""ethtool 6.1 for modelled ports; any other interface, and any other option, goes to the real program."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from railyard_lab import catalogue, ports
from railyard_lab import state as state_file
from railyard_lab.tools import _common

FEATURES: dict[str, tuple[bool, bool]] = {
    # name: (on, fixed)
    "rx-checksumming": (True, False), "tx-checksumming": (True, False), "scatter-gather": (True, False),
    "tcp-segmentation-offload": (True, False), "generic-segmentation-offload": (True, False),
    "generic-receive-offload": (True, False), "large-receive-offload": (False, False),
    "rx-vlan-offload": (True, False), "tx-vlan-offload": (True, False), "ntuple-filters": (False, False),
    "receive-hashing": (True, False), "highdma": (True, True), "rx-vlan-filter": (True, False),
    "tx-gso-partial": (True, False), "tx-udp-segmentation": (True, False), "rx-all": (False, False),
    "hw-tc-offload": (False, False), "rx-gro-hw": (False, True), "rx-udp-gro-forwarding": (False, False),
}  # fmt: skip
SHORT = {
    "rx": "rx-checksumming", "tx": "tx-checksumming", "sg": "scatter-gather", "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload", "gro": "generic-receive-offload", "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload", "txvlan": "tx-vlan-offload", "ntuple": "ntuple-filters", "rxhash": "receive-hashing",
}  # fmt: skip
MODES = {
    400: ["400000baseKR4/Full", "400000baseCR4/Full", "400000baseSR4/Full"],
    200: ["200000baseKR4/Full", "200000baseSR4/Full", "200000baseCR4/Full"],
    100: ["100000baseKR4/Full", "100000baseSR4/Full", "100000baseCR4/Full"],
    25: ["25000baseCR/Full", "25000baseKR/Full", "25000baseSR/Full"],
    10: ["100baseT/Full", "1000baseT/Full", "10000baseT/Full"],
}


class Failure(Exception):
    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def main(name: str, argv: list[str]) -> int:
    original = list(argv)
    as_json = False
    while argv and argv[0] in ("--json", "-j", "--debug", "-I", "--include-statistics"):
        as_json |= argv.pop(0) in ("--json", "-j")
    if not argv:
        return _real(original, "ethtool: bad command line argument(s)\nFor more information run ethtool -h")
    if argv[0] in ("--version", "-h", "--help"):
        if argv[0] == "--version":
            print("ethtool version 6.1")
            return 0
        return _real(original, "ethtool version 6.1")
    option = argv[0] if argv[0].startswith("-") else ""
    words = argv[1:] if option else argv
    handler = HANDLERS.get(option)
    with state_file.change() as state:
        nic = state_file.nic_by(state, "netdev", words[0]) if words else None
        live = _common.live(state)
        if nic is not None and handler is not None and nic["link_layer"] == "Ethernet" and words[0] in live:
            try:
                return handler(state, nic, words[1:], as_json)
            except Failure as error:
                if as_json:
                    print("[ ]")
                _common.error(str(error))
                return error.code
    return _real(original, "netlink error: No such device\nCannot get device settings: No such device" if words else "")


def _real(argv: list[str], otherwise: str) -> int:
    if _common.run_real("ethtool", argv) is None and otherwise:
        _common.error(otherwise)
    return 1


def _answer(document: dict[str, Any]) -> int:
    print(json.dumps([document], indent=4))
    return 0


def _mlx(nic: dict[str, Any]) -> None:
    if catalogue.NICS[nic["model"]]["vendor"] != "15b3" or nic["vf"]:
        raise Failure("netlink error: Operation not supported")


def _settings(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    if as_json:
        raise Failure("ethtool: bad command line argument(s)\nFor more information run ethtool -h")
    port = ports.view(state, nic, _common.live(state))
    model = catalogue.NICS[nic["model"]]
    if model["vendor"] == "1af4":
        print(f"Settings for {nic['netdev']}:\n\tSupported ports: [  ]\n\tSupported link modes:   Not reported")
        print("\tSpeed: Unknown!\n\tDuplex: Unknown! (255)\n\tAuto-negotiation: off\n\tPort: Other\n\tPHYAD: 0")
        print(f"\tTransceiver: internal\n\tLink detected: {'yes' if port['up'] else 'no'}")
        return 0
    modes = MODES.get(nic["rate_gbps"], MODES[100])
    joined = "\n\t                        ".join(modes)
    print(f"Settings for {nic['netdev']}:")
    print(f"\tSupported ports: [ {'TP' if nic['rate_gbps'] == 10 else 'Backplane'} ]")
    print(f"\tSupported link modes:   {joined}")
    print("\tSupported pause frame use: Symmetric")
    print("\tSupports auto-negotiation: Yes")
    print("\tSupported FEC modes: None\t RS\t BASER")
    print(f"\tAdvertised link modes:  {joined}")
    print("\tAdvertised pause frame use: Symmetric")
    print("\tAdvertised auto-negotiation: Yes")
    print(f"\tAdvertised FEC modes: {nic['fec']}")
    if port["up"]:
        print("\tLink partner advertised link modes:  Not reported")
        print("\tLink partner advertised pause frame use: No")
        print("\tLink partner advertised auto-negotiation: Yes")
        print("\tLink partner advertised FEC modes: Not reported")
        print(f"\tSpeed: {port['rate_gbps'] * 1000}Mb/s")
        print("\tDuplex: Full")
    else:
        print("\tSpeed: Unknown!\n\tDuplex: Unknown! (255)")
    print("\tAuto-negotiation: on")
    print("\tPort: Direct Attach Copper" if nic["rate_gbps"] != 10 else "\tPort: Twisted Pair")
    print("\tPHYAD: 0\n\tTransceiver: internal\n\tSupports Wake-on: d\n\tWake-on: d")
    print(f"\tLink detected: {'yes' if port['up'] else 'no'}")
    return 0


def _driver(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    model = catalogue.NICS[nic["model"]]
    ofed = state["stack"]["version"] if model["driver"] == "mlx5_core" else None
    firmware = f"{nic['firmware']} ({nic['psid']})" if nic["psid"] else nic["firmware"]
    print(f"driver: {'virtio_net' if model['vendor'] == '1af4' else model['driver']}")
    print(f"version: {ofed or '6.1.0-32-amd64'}")
    print(f"firmware-version: {firmware}")
    print("expansion-rom-version: ")
    print(f"bus-info: {nic['pci']}")
    print("supports-statistics: yes\nsupports-test: yes\nsupports-eeprom-access: no")
    print(f"supports-register-dump: no\nsupports-priv-flags: {'yes' if nic['rdma'] else 'no'}")
    return 0


def _rings(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    if as_json:
        raise Failure("ethtool: bad command line argument(s)\nFor more information run ethtool -h")
    print(f"Ring parameters for {nic['netdev']}:\nPre-set maximums:")
    print("RX:\t\t8192\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t8192\nCurrent hardware settings:")
    print(f"RX:\t\t{nic['rings']['rx']}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t{nic['rings']['tx']}")
    print("RX Buf Len:\t\tn/a\nCQE Size:\t\tn/a\nTX Push:\toff")
    return 0


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2]))


def _set_rings(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    for key, text in _pairs(words):
        if key not in ("rx", "tx") or not text.isdigit():
            raise Failure("ethtool: bad command line argument(s)\nFor more information run ethtool -h")
        if int(text) > 8192:
            raise Failure("netlink error: requested ring size exceeds maximum\nnetlink error: Invalid argument")
        nic["rings"][key] = int(text)
    return 0


def _pause(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    values = nic["pause"]
    # While PFC is on, the driver reports global pause as off.
    rx, tx = (False, False) if any(nic.get("qos", {}).get("pfc", [])) else (values["rx"], values["tx"])
    if as_json:
        return _answer({"ifname": nic["netdev"], "autonegotiate": values["autonegotiate"], "rx": rx, "tx": tx})
    print(f"Pause parameters for {nic['netdev']}:")
    print(f"Autonegotiate:\t{'on' if values['autonegotiate'] else 'off'}")
    print(f"RX:\t\t{'on' if rx else 'off'}\nTX:\t\t{'on' if tx else 'off'}\n")
    return 0


def _set_pause(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    for key, text in _pairs(words):
        name = {"autoneg": "autonegotiate"}.get(key, key)
        if name not in nic["pause"] or text not in ("on", "off"):
            raise Failure("ethtool: bad command line argument(s)\nFor more information run ethtool -h")
        if name == "autonegotiate" and text == "on":
            raise Failure("netlink error: Operation not supported")
        nic["pause"][name] = text == "on"
    return 0


def _features(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    table = {name: (nic["features"].get(name, on), fixed) for name, (on, fixed) in FEATURES.items()}
    if as_json:
        document: dict[str, Any] = {"ifname": nic["netdev"]}
        document |= {name: {"active": on, "fixed": fixed, "requested": on} for name, (on, fixed) in table.items()}
        return _answer(document)
    print(f"Features for {nic['netdev']}:")
    for name, (on, fixed) in table.items():
        print(f"{name}: {'on' if on else 'off'}{' [fixed]' if fixed else ''}")
    return 0


def _set_features(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    for key, text in _pairs(words):
        name = SHORT.get(key, key)
        if name not in FEATURES or text not in ("on", "off"):
            raise Failure("ethtool: bad command line argument(s)\nFor more information run ethtool -h")
        if FEATURES[name][1]:
            raise Failure("Could not change any device features")
        nic["features"][name] = text == "on"
    return 0


def _channels(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    print(f"Channel parameters for {nic['netdev']}:\nPre-set maximums:")
    print("RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t63\nCurrent hardware settings:")
    print(f"RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t{nic['channels']}")
    return 0


def _set_channels(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    for key, text in _pairs(words):
        if key != "combined" or not text.isdigit() or not 1 <= int(text) <= 63:
            raise Failure("netlink error: requested channel count exceeds maximum\nnetlink error: Invalid argument")
        nic["channels"] = int(text)
    return 0


def _statistics(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    names = ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_out_of_buffer", "rx_discards_phy", "tx_discards_phy",
             "rx_crc_errors_phy", "rx_symbol_err_phy", "link_down_events_phy", "module_bad_shorted"]  # fmt: skip
    names += [f"{side}_prio{priority}_{what}" for priority in range(8) for side in ("rx", "tx") for what in
              ("bytes", "packets", "pause", "pause_duration")]  # fmt: skip
    values = {
        "link_down_events_phy": nic["flaps"],
        "rx_symbol_err_phy": nic["symbol_errors"],
        **nic.get("statistics", {}),
    }
    print("NIC statistics:")
    for name in names:
        print(f"     {name}: {values.get(name, 0)}")
    return 0


def _fec(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    _mlx(nic)
    if as_json:
        return _answer({"ifname": nic["netdev"], "config": ["AUTO", "RS"], "active": [nic["fec"]]})
    print(
        f"FEC parameters for {nic['netdev']}:\nSupported/Configured FEC encodings: Auto RS\nActive FEC encoding: {nic['fec']}"
    )
    return 0


def _set_fec(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    _mlx(nic)
    for key, text in _pairs(words):
        if key != "encoding" or text.lower() not in ("auto", "rs", "baser", "off"):
            raise Failure("ethtool: bad command line argument(s)\nFor more information run ethtool -h")
        if nic["rate_gbps"] >= 200 and text.lower() in ("baser", "off"):
            raise Failure("Cannot set FEC settings: Operation not supported", 99)
        nic["fec"] = {"auto": "RS", "rs": "RS", "baser": "BaseR", "off": "Off"}[text.lower()]
    return 0


def _coalescing(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    print(f"Coalesce parameters for {nic['netdev']}:\nAdaptive RX: on  TX: on")
    print("stats-block-usecs:\tn/a\nsample-interval:\tn/a\npkt-rate-low:\t\tn/a\npkt-rate-high:\t\tn/a\n")
    print("rx-usecs:\t8\nrx-frames:\t128\nrx-usecs-irq:\tn/a\nrx-frames-irq:\tn/a\n")
    print("tx-usecs:\t8\ntx-frames:\t128\ntx-usecs-irq:\tn/a\ntx-frames-irq:\tn/a\n")
    return 0


def _permanent(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    print(f"Permanent address: {nic['mac']}")
    return 0


def _module(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    _mlx(nic)
    if not nic["cable"]:
        raise Failure("netlink error: Input/output error")
    rows = [
        ("Identifier", "0x19 (OSFP)" if nic["rate_gbps"] == 400 else "0x11 (QSFP28)"),
        ("Power class", "1"), ("Max power", "0.50W"), ("Connector", "0x23 (No separable connector)"),
        ("Cable assembly length", "2.00m"), ("Transmitter technology", "0x0a (Copper cable, unequalized)"),
        ("Active Cu cable type", "Passive copper"), ("Length (SMF)", "0.00km"),
        ("Vendor name", "NVIDIA"), ("Vendor OUI", "48:b0:2d"), ("Vendor PN", "MCP4Y10-N002"), ("Vendor rev", "A2"),
        ("Vendor SN", nic["serial"].replace("MT2409X", "MT2411VS")), ("Date code", "240312"), ("Revision compliance", "Rev. 4.0"),
    ]  # fmt: skip
    for label, value in rows:
        print(f"\t{label:<41} : {value}")
    return 0


def _set(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    wanted = dict(_pairs(words))
    if "speed" in wanted:
        speed = int(wanted["speed"]) // 1000 if wanted["speed"].isdigit() else 0
        if speed not in catalogue.RATE_TEXT or speed > nic["rate_gbps"]:
            raise Failure("netlink error: link settings update failed\nnetlink error: Invalid argument", 75)
        nic["speed_limit_gbps"] = speed if speed != nic["rate_gbps"] else None
        nic["flaps"] += 1
    elif wanted.get("autoneg") == "on":
        nic["speed_limit_gbps"] = None
    return 0


HANDLERS: dict[str, Callable[[dict[str, Any], dict[str, Any], list[str], bool], int]] = {
    "": _settings,
    "-s": _set, "--change": _set,
    "-i": _driver, "--driver": _driver,
    "-g": _rings, "--show-ring": _rings, "-G": _set_rings, "--set-ring": _set_rings,
    "-a": _pause, "--show-pause": _pause, "-A": _set_pause, "--pause": _set_pause,
    "-k": _features, "--show-features": _features, "--show-offload": _features,
    "-K": _set_features, "--features": _set_features, "--offload": _set_features,
    "-l": _channels, "--show-channels": _channels, "-L": _set_channels, "--set-channels": _set_channels,
    "-S": _statistics, "--statistics": _statistics,
    "--show-fec": _fec, "--set-fec": _set_fec,
    "-c": _coalescing, "--show-coalesce": _coalescing,
    "-P": _permanent, "--show-permaddr": _permanent,
    "-m": _module, "--module-info": _module, "--dump-module-eeprom": _module,
}  # fmt: skip
