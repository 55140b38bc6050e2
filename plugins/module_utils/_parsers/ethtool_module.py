# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool -m``: identity and diagnostics of a plugged module (SFP, QSFP, CMIS).

Value::

    {"identifier", "connector", "transceiver_types": [...], "vendor_name", "vendor_oui", "part_number", "serial_number",
     "revision", "date_code", "temperature_c", "voltage_v",
     "lanes": {"1": {"bias_ma", "tx_power_mw", "tx_power_dbm", "rx_power_mw", "rx_power_dbm"}},
     "flags": {"laser_rx_power_low_alarm": bool}, "raised": [names of the flags that are on],
     "extra": {label: [texts]}, "errors": [...]}

A module with one laser has lane "1".  No light is ``-inf`` dBm: the power in mW is then 0 and ``…_dbm`` absent.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Parsed,
    Problems,
    believable,
    failure,
    first_output,
    number,
)

_FIELD = re.compile(r"^\s*([A-Z][\w ,./()+-]*?)\s*: (.*?)\s*$")
_EMPTY = re.compile(r"^\s*[A-Z][\w ,./()+-]*?\s*:\s*$")
_ONCE = re.compile(r"^\s*(Identifier)\s*:")
_CHANNEL = re.compile(r"\s*\((?:Channel|Chan) (\d+)\)$")
_FLAG = re.compile(r"(?:alarm|warning)$")
_BIAS = re.compile(r"^(\d+(?:\.\d+)?) mA$")
_POWER = re.compile(r"^(\d+(?:\.\d+)?) mW / (-?\d+(?:\.\d+)?|-inf) dBm$")
_TEMPERATURE = re.compile(r"^(-?\d+(?:\.\d+)?) degrees C(?: / -?\d+(?:\.\d+)? degrees F)?$")
_VOLTAGE = re.compile(r"^(\d+(?:\.\d+)?) V$")
_ERROR = re.compile(r"^(?:Cannot get|netlink error)")
_TEXTS = {
    "Identifier": "identifier",
    "Connector": "connector",
    "Vendor name": "vendor_name",
    "Vendor OUI": "vendor_oui",
    "Vendor PN": "part_number",
    "Vendor SN": "serial_number",
    "Vendor rev": "revision",
    "Date code": "date_code",
}
_BIASES = ("Laser bias current", "Laser tx bias current")
_TX = ("Laser output power", "Transmit avg optical power", "Laser tx power")
_RX = (
    "Receiver signal average optical power",
    "Receiver signal OMA",
    "Rcvr signal avg optical power",
    "Laser rx power",
)


def _lane(value: dict[str, Any], label: str, channel: str, text: str) -> bool | None:
    """Put a lane's measurement; False where the text is none, None where the label is no measurement."""
    lane = value["lanes"].setdefault(channel, {})
    if label in _BIASES:
        match = _BIAS.match(text)
        if match:
            lane["bias_ma"] = number(match.group(1))
        return bool(match)
    way = "tx" if label in _TX else "rx" if label in _RX else None
    if way is None:
        if not lane:
            del value["lanes"][channel]
        return None
    match = _POWER.match(text)
    if match:
        lane[f"{way}_power_mw"] = number(match.group(1))
        if match.group(2) != "-inf":
            lane[f"{way}_power_dbm"] = number(match.group(2))
    return bool(match)


def _set(value: dict[str, Any], label: str, text: str) -> bool:
    """Put one field; False where its text is not what ethtool prints."""
    channel = _CHANNEL.search(label)
    bare = _CHANNEL.sub("", label)
    if _FLAG.search(bare) and text in ("On", "Off"):
        name = re.sub(r"\W+", "_", bare.lower()) + (f"_channel_{channel.group(1)}" if channel else "")
        value["flags"][name] = text == "On"
        if text == "On":
            value["raised"].append(name)
        return True
    lane = _lane(value, bare, channel.group(1) if channel else "1", text)
    if lane is not None:
        return lane
    if label in ("Module temperature", "Module voltage"):
        match = (_TEMPERATURE if label == "Module temperature" else _VOLTAGE).match(text)
        if match:
            value["temperature_c" if label == "Module temperature" else "voltage_v"] = number(match.group(1))
        return bool(match)
    if label == "Transceiver type":
        value["transceiver_types"].append(text)
    elif label in _TEXTS:
        value.setdefault(_TEXTS[label], text)
    else:
        # `Option` and the like stand there once for each.
        value["extra"].setdefault(label, []).append(text)
    return True


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool -m``."""
    problems = Problems()
    value: dict[str, Any] = {
        "transceiver_types": [],
        "lanes": {},
        "flags": {},
        "raised": [],
        "extra": {},
        "errors": [],
    }
    started = False
    for line in first_output(believable(text, problems), _ONCE, problems):
        match = _FIELD.match(line.text)
        if _ERROR.match(line.text) or failure(line.text):
            value["errors"].append(line.text.strip())
            problems.add("ethtool could not read the module.", line)
        elif match and (started or match.group(1) == "Identifier" or line.indented):
            said = match.group(2)
            # Units stand behind every measurement, and flags are one of two words.
            whole = line.terminated or said in ("On", "Off") or bool(re.search(r" (?:dBm|degrees F)$", said))
            started = True
            if not whole:
                problems.cut(line)
            elif said and not _set(value, match.group(1), said):
                problems.add(f"ethtool does not print '{said}' here.", line)
        elif not line.terminated:
            problems.cut(line)
        elif started and not _EMPTY.match(line.text):
            problems.add("This is no field of a module.", line)
    if not started and not len(problems) and text and text.strip():
        problems.add("There is no output of ethtool -m in this text.")
    return problems.result(value)
