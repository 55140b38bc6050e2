# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""ethtool 6.1 for modelled ports; any other interface, and any other option, goes to the real program."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from railyard_lab import catalogue, interfaces, link, ports
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
    with state_file.use(writes=handler in WRITERS) as state:
        nic = state_file.nic_by(state, "netdev", words[0]) if words else None
        known = nic is not None and handler is not None and nic["link_layer"] == "Ethernet"
        if known and interfaces.exists(state, words[0]):
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
    mellanox = model["vendor"] == "15b3"
    fec = "None\t RS\t BASER" + ("\t LLRS" if link.LANES.get(nic["model"][:3], 0) > 25 else "") if mellanox else ""
    print(f"Settings for {nic['netdev']}:")
    print(f"\tSupported ports: [ {'Backplane' if mellanox else 'TP'} ]")
    print(f"\tSupported link modes:   {_modes(link.supported(nic))}")
    print("\tSupported pause frame use: Symmetric")
    print("\tSupports auto-negotiation: Yes")
    print(f"\tSupported FEC modes: {fec or 'Not reported'}")
    print(f"\tAdvertised link modes:  {_modes(link.offered(nic))}")
    print("\tAdvertised pause frame use: Symmetric")
    print(f"\tAdvertised auto-negotiation: {'Yes' if nic['autoneg'] else 'No'}")
    print(f"\tAdvertised FEC modes: {link.active_fec(nic).replace('Off', 'None') if fec else 'Not reported'}")
    if port["up"]:
        print("\tLink partner advertised link modes:  Not reported")
        print("\tLink partner advertised pause frame use: No")
        print("\tLink partner advertised auto-negotiation: Yes")
        print("\tLink partner advertised FEC modes: Not reported")
        print(f"\tSpeed: {port['rate_gbps'] * 1000}Mb/s")
        print("\tDuplex: Full")
    else:
        print("\tSpeed: Unknown!\n\tDuplex: Unknown! (255)")
    print(f"\tAuto-negotiation: {'on' if nic['autoneg'] else 'off'}")
    print("\tPort: Direct Attach Copper" if mellanox else "\tPort: Twisted Pair")
    print("\tPHYAD: 0\n\tTransceiver: internal\n\tSupports Wake-on: d\n\tWake-on: d")
    print(f"\tLink detected: {'yes' if port['up'] else 'no'}")
    return 0


def _modes(names: list[str]) -> str:
    return "\n\t                        ".join(names) or "Not reported"


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
    most = link.MAX_RING
    print(f"RX:\t\t{most}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t{most}\nCurrent hardware settings:")
    print(f"RX:\t\t{nic['rings']['rx']}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t{nic['rings']['tx']}")
    print("RX Buf Len:\t\tn/a\nCQE Size:\t\tn/a\nTX Push:\toff")
    return 0


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2]))


def _set_rings(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    wanted = _numbers(words, ("rx", "tx"))
    for place, size in enumerate(wanted.values()):
        if size > link.MAX_RING:
            raise _refused("requested ring size exceeds maximum", nic, place)
    # The driver keeps a ring's size as a power of two, and rounds up.
    nic["rings"] |= {side: 1 << (size - 1).bit_length() for side, size in wanted.items()}
    return 0


def _numbers(words: list[str], known: tuple[str, ...]) -> dict[str, int]:
    if not words or len(words) % 2 or any(key not in known or not text.isdigit() for key, text in _pairs(words)):
        raise Failure("ethtool: bad command line argument(s)\nFor more information run ethtool -h")
    return {key: int(text) for key, text in _pairs(words)}


def _refused(reason: str, nic: dict[str, Any], place: int) -> Failure:
    """The kernel's message names the attribute by its offset: headers, the interface's name, earlier numbers."""
    offset = 24 + (len(nic["netdev"]) + 4) // 4 * 4 + 4 + 8 * place
    return Failure(f"netlink error: {reason} (offset {offset})\nnetlink error: Invalid argument")


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
    print(f"RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t{link.MAX_CHANNELS}\nCurrent hardware settings:")
    print(f"RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t{nic['channels']}")
    return 0


def _set_channels(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    wanted = _numbers(words, ("rx", "tx", "other", "combined"))
    for place, (kind, count) in enumerate(wanted.items()):
        if count > (link.MAX_CHANNELS if kind == "combined" else 0):
            raise _refused("requested channel count exceeds maximum", nic, place)
    if wanted.get("combined") == 0:
        raise _refused("requested channel counts would result in no RX or TX channel being configured", nic, 0)
    nic["channels"] = wanted.get("combined", nic["channels"])
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
    up = ports.view(state, nic, _common.live(state))["up"]
    configured, active = link.FEC[nic["fec"]], link.active_fec(nic) if up else "None"
    if as_json:
        return _answer({"ifname": nic["netdev"], "config": [configured], "active": [active]})
    print(f"FEC parameters for {nic['netdev']}:\nSupported/Configured FEC encodings: {configured}")
    print(f"Active FEC encoding: {active}")
    return 0


def _set_fec(state: dict[str, Any], nic: dict[str, Any], words: list[str], as_json: bool) -> int:
    _mlx(nic)
    if len(words) < 2 or words[0] != "encoding" or any(word.lower() not in link.FEC for word in words[1:]):
        raise Failure("ethtool: bad command line argument(s)\nFor more information run ethtool -h")
    wanted = words[1].lower()
    # Lanes with four levels need Reed-Solomon, and the driver takes one encoding at a time.
    if len(words) > 2 or (link.rate(nic) >= 200 and wanted in ("baser", "off")):
        raise Failure("netlink error: Operation not supported", 83)
    if wanted != nic["fec"]:
        nic["fec"] = wanted
        _bounce(state, nic)
    return 0


def _bounce(state: dict[str, Any], nic: dict[str, Any]) -> None:
    nic["flaps"] += 1
    for word in ("down", "up"):
        state_file.log_kernel(state, f"mlx5_core {nic['pci']} {nic['netdev']}: Link {word}")


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
    """Speed, duplex, negotiation, and the offered modes, as a mask or each with ``on`` or ``off``."""
    failed = Failure("netlink error: link settings update failed\nnetlink error: Invalid argument", 75)
    given, modes = _link_words(words)
    autoneg = given.get("autoneg", "on" if nic["autoneg"] else "off") == "on"
    able, chosen = link.supported(nic), nic.get("offered")
    if modes is not None:
        chosen = [mode for mode in able if modes.get(mode, mode in link.offered(nic) and "*" not in modes)]
    elif "speed" in given:
        speed = int(given["speed"]) / 1000
        chosen = [mode for mode in able if link.gbps(mode) == speed]
    elif given.get("autoneg") == "on":
        chosen = None
    if chosen == [] or given.get("duplex") == "half" or (not autoneg and "speed" not in given and nic["autoneg"]):
        raise failed
    chosen = None if chosen == able else chosen
    if (chosen, autoneg) != (nic.get("offered"), nic["autoneg"]):
        nic["offered"], nic["autoneg"] = chosen, autoneg
        _bounce(state, nic)
    return 0


def _link_words(words: list[str]) -> tuple[dict[str, str], dict[str, bool] | None]:
    """Words by their key; the modes that are named, with ``*`` where a mask names all of them."""
    allowed = {"speed": None, "duplex": ("half", "full"), "autoneg": ("on", "off")}
    given: dict[str, str] = {}
    modes: dict[str, bool] | None = None
    rest = list(words)
    while rest:
        key = rest.pop(0)
        if key == "advertise" and rest and rest[0] not in link.BITS.values():
            mask = int(rest.pop(0), 16)
            modes = {"*": True, **{mode: bool(mask >> bit & 1) for bit, mode in link.BITS.items()}}
        elif key == "advertise":
            modes = {}
            while len(rest) > 1 and rest[0] in link.BITS.values():
                mode, flag = rest.pop(0), rest.pop(0)
                modes[mode] = flag == "on"
            rest = rest[1:] if rest[:1] == ["--"] else rest
        elif key in allowed and rest and rest[0] in (allowed[key] or rest[:1]):
            given[key] = rest.pop(0)
        else:
            raise Failure(f"ethtool (-s): unexpected parameter '{key}'\nFor more information run ethtool -h", 2)
    if not given.get("speed", "0").isdigit():
        raise Failure(f"ethtool (-s): invalid value '{given['speed']}' for parameter 'speed'", 2)
    return given, modes


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
WRITERS = (_set, _set_rings, _set_pause, _set_features, _set_channels, _set_fec)
