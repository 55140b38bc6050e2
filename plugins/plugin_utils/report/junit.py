# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report for a CI server: every finding and every measurement is a test case. Pure."""

from __future__ import annotations

import typing as t
import xml.etree.ElementTree as ET

# What XML 1.0 cannot hold, whatever a tool may have printed.
_CONTROL = {code: "\ufffd" for code in range(32) if code not in (9, 10, 13)}


def render_junit(report: t.Mapping[str, t.Any]) -> str:
    """Return ``junit.xml``: one suite per host, one more for findings that name no host."""
    suites: dict[str, list[ET.Element]] = {name: [] for name in report["hosts"]}
    for name, host in report["hosts"].items():
        case = ET.Element("testcase", classname=f"{name}.host", name="reachable and complete")
        if host["state"] == "stopped":
            ET.SubElement(case, "skipped", message="the run ended before it came to this host")
        elif host["state"] != "ok":
            _failure(case, host["failure"] or "the host did not answer", host["state"])
        suites[name].append(case)
    for finding in report["findings"]:
        if finding["severity"] == "info":
            continue
        host = finding.get("host") or "rack"
        case = ET.Element(
            "testcase", classname=f"{host}.{finding['id']}", name=_clean(finding.get("device") or finding["id"])
        )
        text = "\n".join(
            [finding["message"], *map(str, finding.get("evidence") or ()), f"Remedy: {finding.get('remedy')}"]
        )
        if finding["severity"] == "fail":
            _failure(case, text, finding["id"])
        else:
            ET.SubElement(case, "system-out").text = _clean(f"warning: {text}")
        suites.setdefault(host, []).append(case)
    for result in report["benchmarks"]:
        name = f"{result['subject']} to {result['peer']}" if result.get("peer") else result["subject"]
        case = ET.Element("testcase", classname=f"{result['host']}.{result['test']}", name=_clean(name))
        if result["verdict"] == "fail":
            _failure(case, f"{result['detail']}\n{result['command']}", "below threshold")
        elif result["verdict"] == "not_run":
            ET.SubElement(case, "skipped", message=_clean(result["detail"]))
        suites[result["host"]].append(case)

    root = ET.Element("testsuites", name=_clean(report["title"]))
    for name, cases in suites.items():
        failed = sum(case.find("failure") is not None for case in cases)
        skipped = sum(case.find("skipped") is not None for case in cases)
        suite = ET.SubElement(
            root, "testsuite", name=name, tests=str(len(cases)), failures=str(failed), errors="0", skipped=str(skipped)
        )
        suite.extend(cases)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _failure(case: ET.Element, text: str, kind: str) -> None:
    text = _clean(text)
    ET.SubElement(case, "failure", message=text.splitlines()[0] if text else kind, type=kind).text = text


def _clean(text: t.Any) -> str:
    return str(text).translate(_CONTROL)


__all__ = ("render_junit",)
