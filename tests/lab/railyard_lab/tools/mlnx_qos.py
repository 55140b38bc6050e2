# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mlnx_qos of mlnx-tools, over DCB netlink as on kernels without OFED's own trust files."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from railyard_lab import qos
from railyard_lab import state as state_file


class Failure(Exception):
    """Message for standard output, as the tool prints most of its own."""


def _numbers(text: str, low: int, high: int, what: str, count: int = 8) -> list[int]:
    words = text.split(",")
    if len(words) > count:
        raise Failure(f"Too many items for {what}")
    found = []
    for word in words:
        try:
            number = int(word)
            if not low <= number <= high:
                raise ValueError(f"{number} is not in the range {low}..{high}")
        except ValueError as error:
            raise Failure(f"Bad value for {what}: {error}\nUsage: mlnx_qos -i <interface> [options]\n") from None
        found.append(number)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mlnx_qos", usage="mlnx_qos -i <interface> [options]")
    parser.add_argument("--version", action="version", version="mlnx_qos 1.2")
    parser.add_argument("-i", "--interface")
    parser.add_argument("-f", "--pfc")
    parser.add_argument("-p", "--prio_tc")
    parser.add_argument("-s", "--tsa")
    parser.add_argument("-t", "--tcbw")
    parser.add_argument("-r", "--ratelimit")
    parser.add_argument("-d", "--dcbx")
    parser.add_argument("--trust")
    parser.add_argument("--dscp2prio", action="append")
    parser.add_argument("--defltprio")
    parser.add_argument("--cable_len")
    parser.add_argument("--prio2buffer")
    parser.add_argument("--buffer_size")
    parser.add_argument("-a", action="store_true", dest="all")
    return parser


def main(name: str, argv: list[str]) -> int:
    given, extra = _parser().parse_known_args(argv)
    if extra:
        print("Bad arguments\nUsage: mlnx_qos -i <interface> [options]\n")
        return 1
    if given.interface is None:
        print("Interface name is required\nUsage: mlnx_qos -i <interface> [options]\n")
        return 1
    try:
        asked = {key for key, value in vars(given).items() if value not in (None, False)}
        with state_file.use(writes=bool(asked - {"interface", "all"})) as state:
            nic = state_file.nic_by(state, "netdev", given.interface)
            if nic is None or not qos.supported(nic):
                # What the script's netlink code answers for a device without DCB: a traceback that ends so.
                known = nic is not None or given.interface in _interfaces(state)
                print("Traceback (most recent call last):\n"
                      '  File "/usr/bin/mlnx_qos", line 362, in <module>\n'
                      "    if (ctrl.get_dcbx() & DCB_CAP_DCBX_HOST):\n"
                      f"OSError: [Errno {95 if known else 19}] Netlink error: "
                      f"{'Operation not supported' if known else 'No such device'} "
                      f"({95 if known else 19})", file=sys.stderr)  # fmt: skip
                return 1
            _apply(nic, given)
            _after(state, nic)
            lines = _show(nic, given.all)
    except Failure as error:
        print(error)
        return 1
    print("\n".join(lines))
    return 0


def _interfaces(state: dict[str, Any]) -> set[str]:
    from railyard_lab import interfaces

    return set(interfaces.current(state))


def _after(state: dict[str, Any], nic: dict[str, Any]) -> None:
    if nic.pop("bounced", False):
        for word in ("down", "up"):
            state_file.log_kernel(state, f"mlx5_core {nic['pci']} {nic['netdev']}: Link {word}")


def _apply(nic: dict[str, Any], given: argparse.Namespace) -> None:
    values = nic["qos"]
    if given.dscp2prio and given.trust:
        raise Failure("trust and dscp2prio commands cannot be used at the same time.")
    if given.dcbx == "os":
        values["dcbx"] = [qos.HOST, qos.CEE, qos.IEEE]
    elif given.dcbx == "fw":
        values["dcbx"] = []
    elif given.dcbx not in (None, "get"):
        raise Failure("Invalid dcbx mode command. Refer to the help.")
    delay = _numbers(given.cable_len, 0, 0xFFFF, "cable_len", 1)[0] if given.cable_len else None
    if given.pfc:
        wanted = _numbers(given.pfc, 0, 1, "PFC")
        if len(wanted) != 8:
            raise Failure("pfc list must have 8 items")
        nic["bounced"] = qos.set_pfc(nic, wanted, delay)
    elif delay:
        # The script sends the whole PFC structure: without --pfc that means no priority.
        nic["bounced"] = qos.set_pfc(nic, [0] * 8, delay)
    for word in given.dscp2prio or []:
        _dscp(values, word)
    if given.defltprio:
        _default_priority(values, given.defltprio)
    if given.trust:
        if given.trust not in ("dscp", "pcp"):
            raise Failure("Invalid trust state command. Refer to the help.")
        qos.set_trust(values, given.trust)
    places = _numbers(given.prio2buffer, 0, 7, "prio buffer") if given.prio2buffer else []
    sizes = _numbers(given.buffer_size, 0, qos.MAX_BUFFER, "buffer_size") if given.buffer_size else []
    places, sizes = places + values["prio_buffer"][len(places) :], sizes + values["buffer_size"][len(sizes) :]
    if (given.prio2buffer or given.buffer_size) and not qos.set_buffers(nic, places, sizes):
        raise Failure("Buffers commands error")
    if given.ratelimit:
        rates = _numbers(given.ratelimit, 0, 1000000, "ratelimit")
        if len(rates) != 8:
            raise Failure("ratelimit must have 8 items")
        values["maxrate"] = [rate * 1000 * 1000 for rate in rates]
    _ets(values, given)


def _dscp(values: dict[str, Any], word: str) -> None:
    if word == "flush":
        for dscp, priority in list(values["dscp"].items()):
            qos.delete_app(values, int(dscp), priority)
        return
    try:
        action, dscp_text, priority_text = word.split(",")
        dscp, priority = int(dscp_text), int(priority_text)
    except ValueError:
        raise Failure("Invalid dscp2prio command. Refer to the help.") from None
    if action not in ("set", "del") or not 0 <= dscp <= 63 or not 0 <= priority <= 7:
        raise Failure("Invalid dscp2prio command. Refer to the help.")
    if action == "set":
        qos.set_app(values, dscp, priority)
    elif not qos.delete_app(values, dscp, priority):
        raise Failure("dscp2prio command failed")


def _default_priority(values: dict[str, Any], word: str) -> None:
    action, _, text = word.partition(",")
    if action not in ("set", "del") or not text.isdigit() or int(text) > 7:
        raise Failure("Invalid defltprio command. Refer to the help.")
    others = [priority for priority in values["default_prio"] if priority != int(text)]
    values["default_prio"] = [*others, int(text)] if action == "set" else others


def _ets(values: dict[str, Any], given: argparse.Namespace) -> None:
    tsa, bandwidth, prio_tc = list(values["tsa"]), list(values["tc_bw"]), list(values["prio_tc"])
    if given.tsa:
        tsa = given.tsa.split(",")
        if any(word not in ("strict", "ets", "vendor") for word in tsa):
            raise Failure("Bad TSA value")
        if len(tsa) != 8:
            raise Failure("tsa list must have 8 items")
    if given.tcbw:
        bandwidth = _numbers(given.tcbw, 0, 100, "ETS BW")
        if len(bandwidth) != 8:
            raise Failure("tcbw list must have 8 items")
        if any(share and kind != "ets" for share, kind in zip(bandwidth, tsa)):
            raise Failure("ETS BW for a strict/vendor TC must be 0\nUsage: mlnx_qos -i <interface> [options]\n")
    if given.prio_tc:
        prio_tc = _numbers(given.prio_tc, 0, 7, "UP => TC mapping")
        if len(prio_tc) != 8:
            raise Failure("prio_tc list must have 8 items")
    if given.tsa or given.tcbw or given.prio_tc:
        if "ets" in tsa and sum(bandwidth) != 100:
            raise Failure("Netlink error: Bad value. see dmesg.")
        values["tsa"], values["tc_bw"], values["prio_tc"] = tsa, bandwidth, prio_tc


def _show(nic: dict[str, Any], everything: bool) -> list[str]:
    values = nic["qos"]
    lines = [f"DCBX mode: {'OS' if qos.HOST in values['dcbx'] else 'Firmware'} controlled"]
    lines.append(f"Priority trust state: {values['trust']}")
    if values["trust"] == "dscp":
        lines.append("dscp2prio mapping:")
        for priority in range(8):
            mapped = sorted((int(dscp) for dscp, to in values["dscp"].items() if to == priority), reverse=True)
            for start in range(0, len(mapped), 8):
                chunk = "".join(f"{dscp:02d}," for dscp in mapped[start : start + 8])
                lines.append(f"\tprio:{priority} dscp:{chunk}")
    lines.append("default priority:")
    lines += [f"\tprio:{priority}" for priority in values["default_prio"]]
    sizes = "".join(f"{size}," for size in values["buffer_size"])
    lines.append(f"Receive buffer size (bytes): {sizes}max_buffer_size={qos.MAX_BUFFER}")
    lines.append(f"Cable len: {values['delay']}")
    lines.append("PFC configuration:")
    lines.append("\tpriority    0   1   2   3   4   5   6   7")
    lines.append("\tenabled     " + "".join(f"{bit}   " for bit in values["pfc"]))
    lines.append("\tbuffer      " + "".join(f"{buffer}   " for buffer in values["prio_buffer"]))
    classes: dict[int, list[int]] = {tc: [] for tc in range(8)} if everything else {}
    for priority, tc in enumerate(values["prio_tc"]):
        classes.setdefault(tc, []).append(priority)
    for tc, priorities in classes.items():
        rate = values["maxrate"][tc]
        limit = f"{rate / 1000 / 1000:.1f} Gbps" if rate else "unlimited"
        kind = values["tsa"][tc]
        share = f"ets, bw: {values['tc_bw'][tc]}%" if kind == "ets" else kind
        lines.append(f"tc: {tc} ratelimit: {limit}, tsa: {share}")
        lines += [f"\t priority:  {priority}" for priority in priorities]
    return lines
