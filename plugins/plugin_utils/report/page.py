# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as one HTML page that needs nothing else: no script, no font, no image from elsewhere. Pure."""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

import jinja2

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.report.drawing import draw

Json = dict[str, t.Any]
SEVERITIES = ("fail", "warn", "info")


@functools.cache
def template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        # Data is sparse by nature (a bundle may hold two files): what is not known is printed as nothing.
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(amount=amount, level=level)
    return environment.get_template("page.html.j2")


def render_html(report: t.Mapping[str, t.Any]) -> str:
    """Return the page of a report as :func:`build` makes it."""
    return template().render(
        report=report,
        rails=rail_numbers(report),
        cells=bandwidth_cells(report),
        others=[result for result in report["benchmarks"] if result.get("rail") is None],
        findings=grouped(report["findings"]),
        drawings={name: draw(host["tree"], f"Topology of {name}") for name, host in report["hosts"].items()},
    )


def amount(value: t.Any) -> str:
    """Return a measured value without digits that mean nothing."""
    if value is None or isinstance(value, jinja2.Undefined):
        return "\u2013"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def level(result: Json) -> str:
    """Return the class of a heat-map cell: how far above or below its threshold a value is."""
    if result["verdict"] == "not_run":
        return "none"
    if result["verdict"] == "fail":
        low = result["threshold"] and result["value"] is not None and result["value"] >= 0.8 * result["threshold"]
        return "low" if low else "bad"
    return "free" if result["threshold"] is None else "good"


def rail_numbers(report: t.Mapping[str, t.Any]) -> list[int]:
    return sorted({result["rail"] for result in report["benchmarks"] if result.get("rail") is not None})


def bandwidth_cells(report: t.Mapping[str, t.Any]) -> dict[str, dict[int, Json]]:
    """Return the measurements of the rails by host and rail."""
    cells: dict[str, dict[int, Json]] = {}
    for result in report["benchmarks"]:
        if result.get("rail") is not None:
            cells.setdefault(result["host"], {})[result["rail"]] = result
    return cells


def grouped(findings: t.Sequence[Json]) -> list[Json]:
    """Return findings worst first; the same finding on many hosts and devices is one entry with all of them."""
    groups: dict[tuple[str, str], Json] = {}
    for finding in findings:
        key = (finding["severity"], finding["id"])
        group = groups.setdefault(key, {**finding, "places": []})
        group["places"].append(finding)
    return sorted(groups.values(), key=lambda group: (SEVERITIES.index(group["severity"]), group["id"]))


__all__ = ("render_html",)
