# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's topology as an SVG: sockets, PCIe switches, GPUs above, NICs below, each pair joined. Pure.

Colours come from the page's style sheet by class, so the drawing follows its light and dark scheme.
"""

from __future__ import annotations

import typing as t
from html import escape

Json = dict[str, t.Any]

CHIP_W, CHIP_H, GAP, PAD, HEAD = 132, 44, 10, 12, 22
ROW_SPACE = 34
WIDTH = 1180
RAIL_COLOURS = 8


class Box(t.NamedTuple):
    """A switch with its two rows of devices, measured."""

    switch: Json
    upper: list[Json]
    lower: list[Json]
    width: int
    height: int


def draw(sockets: t.Sequence[Json], title: str) -> str:
    """Return the drawing of one host, or an empty string where nothing is known of it."""
    parts: list[str] = []
    y = 0
    for socket in sockets:
        panel, height = draw_socket(socket, y)
        parts += panel
        y += height + GAP
    if not parts:
        return ""
    return (
        f'<svg class="topology" viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{escape(title, quote=True)}"'
        ' xmlns="http://www.w3.org/2000/svg">' + "".join(parts) + "</svg>"
    )


def measure(switch: Json) -> Box:
    upper = [item for item in switch["devices"] if item["kind"] != "nic"]
    lower = [item for item in switch["devices"] if item["kind"] == "nic"]
    columns = max(len(upper), len(lower), 1)
    rows = bool(upper) + bool(lower)
    width = columns * CHIP_W + (columns - 1) * GAP + 2 * PAD
    height = HEAD + rows * CHIP_H + (ROW_SPACE if rows == 2 else 0) + PAD
    return Box(switch, upper, lower, width, height)


def draw_socket(socket: Json, top: int) -> tuple[list[str], int]:
    """Return the elements of one socket's panel and its height; switches wrap like words."""
    name = "NUMA node not known" if socket["numa"] is None else f"CPU socket, NUMA node {socket['numa']}"
    elements: list[str] = []
    x, y, line = PAD, top + HEAD + PAD, 0
    for box in map(measure, socket["switches"]):
        if x > PAD and x + box.width > WIDTH - PAD:
            x, y, line = PAD, y + line + GAP, 0
        elements += draw_switch(box, x, y)
        x += box.width + GAP
        line = max(line, box.height)
    height = y + line + PAD - top
    frame = f'<rect class="socket" x="1" y="{top + 1}" width="{WIDTH - 2}" height="{height - 2}" rx="10"/>'
    return [frame, text(PAD, top + 20, name, "caption"), *elements], height


def draw_switch(box: Box, x: int, y: int) -> list[str]:
    kind = "PCIe switch" if box.switch["kind"] == "switch" else "root complex"
    elements = [
        f'<rect class="switch" x="{x}" y="{y}" width="{box.width}" height="{box.height}" rx="8"/>',
        text(x + PAD, y + 15, f"{kind} {box.switch['pci'].removeprefix('pci')}", "small"),
    ]
    row = y + HEAD
    places: dict[int, tuple[int, int]] = {}
    for index, device in enumerate(box.upper):
        left = x + PAD + index * (CHIP_W + GAP)
        elements += chip(device, left, row)
        if device["kind"] == "gpu":
            places[device["gpu"]] = (left + CHIP_W // 2, row + CHIP_H)
    if box.upper:
        row += CHIP_H + (ROW_SPACE if box.lower else 0)
    for index, device in enumerate(box.lower):
        left = x + PAD + index * (CHIP_W + GAP)
        start = places.get(device.get("gpu"))
        if device.get("rail") is not None and start:
            middle = row - ROW_SPACE // 2
            elements.append(
                f'<path class="link r{device["rail"] % RAIL_COLOURS}" d="M{start[0]} {start[1]} C{start[0]} {middle}'
                f' {left + CHIP_W // 2} {middle} {left + CHIP_W // 2} {row}"/>'
            )
        elements += chip(device, left, row)
    return elements


def chip(device: Json, x: int, y: int) -> list[str]:
    classes = [device["kind"]]
    if device["kind"] == "nic":
        rail = device.get("rail")
        classes.append(f"r{rail % RAIL_COLOURS}" if rail is not None else "norail")
        if device.get("up") is False:
            classes.append("down")
    hint = " — ".join(str(part) for part in (device["pci"], device.get("role"), device.get("reason")) if part)
    sub = device.get("sub") or ""
    if device["kind"] == "nic":
        role = (
            f"rail {device['rail']}" if device.get("rail") is not None else (device.get("role") or "").replace("_", " ")
        )
        sub = f"{role} · {sub}" if sub else role
    return [
        f'<g class="chip {" ".join(classes)}"><title>{escape(hint)}</title>',
        f'<rect x="{x}" y="{y}" width="{CHIP_W}" height="{CHIP_H}" rx="6"/>',
        text(x + 8, y + 18, fit(device["label"], 17), "name"),
        text(x + 8, y + 34, fit(sub, 26), "small", squeeze=len(sub) > 19),
        "</g>",
    ]


def fit(words: str, length: int) -> str:
    """Shorten what would leave its chip."""
    return words if len(words) <= length else words[: length - 1] + "…"


def text(x: int, y: int, words: str, kind: str, squeeze: bool = False) -> str:
    """Words at a place; those that are squeezed take the width of a chip, whatever the font."""
    width = f' textLength="{CHIP_W - 16}" lengthAdjust="spacingAndGlyphs"' if squeeze else ""
    return f'<text class="{kind}" x="{x}" y="{y}"{width}>{escape(words)}</text>'


__all__ = ("draw",)
