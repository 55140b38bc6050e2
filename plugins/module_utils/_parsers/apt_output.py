# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``apt``, ``apt-get`` and ``dpkg`` say while they work, apt's history log, and ``apt-cache policy``
(``parse_policy``).

Value::

    {"errors": [{"kind", "text", …}], "notices": [text],
     "summary": {"upgraded", "newly_installed", "removed", "not_upgraded"},
     "actions": [{"action": "install"|"upgrade"|"downgrade"|"remove"|"purge"|"reinstall"|"configure", "package",
                  "architecture", "version", "old_version"}],
     "failed_packages": [names],                                       # "Errors were encountered while processing:"
     "dkms_failures": [{"module", "kernel", "code"}],                  # the cause, when a kernel's package fails
     "history": [{"start", "end", "command", "requested_by", "error", "actions": [...]}]}

Kinds of errors: ``lock`` (path, pid, process), ``key`` (key_id), ``signed_by_conflict`` (source), ``sources``,
``fetch`` (url), ``no_release`` (source), ``not_found`` (package), ``version_not_found`` (package, version),
``unmet_dependencies``, ``held``, ``interrupted``, ``dpkg_package`` (package, phase, code; where two packages bring one
file: path, other_package), ``dpkg`` (code), ``space``, ``dkms`` (kernel), ``other``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Line, Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_NAME = r"[a-z0-9][a-z0-9+.-]*"
_ERRORS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            "lock",
            r"Could not get lock (?P<path>\S+?)\.? (?:It is held by process (?P<pid>\d+) \((?P<process>[^)]*)\)"
            r"|- open)",
        ),
        (
            "lock",
            r"(?:Unable to (?:acquire the dpkg frontend lock|lock \S+)|Unable to lock the administration directory)",
        ),
        ("lock", r"dpkg \S+ lock (?:was|is) locked by another process(?: with pid (?P<pid>\d+))?"),
        ("signed_by_conflict", r"Conflicting values set for option Signed-By regarding source (?P<source>.+?)(?:: |$)"),
        ("key", r"(?:NO_PUBKEY|EXPKEYSIG|REVKEYSIG|KEYEXPIRED) (?P<key_id>[0-9A-F]{8,40})\b"),
        ("key", r"Missing key (?P<key_id>[0-9A-F]{8,40})\b"),
        ("key", r"(?:is not signed|couldn't be verified because the public key|signatures were invalid)"),
        ("sources", r"The list of sources could not be read|Malformed (?:line|entry|stanza) \d+ in "),
        ("no_release", r"The repository '(?P<source>[^']+)' (?:does not have|no longer has) a Release file"),
        ("fetch", r"Failed to fetch (?P<url>\S+)"),
        ("not_found", r"Unable to locate package (?P<package>\S+)"),
        ("not_found", r"Couldn't find any package by (?:glob|regex|task) '(?P<package>[^']+)'"),
        ("not_found", r"Package '(?P<package>[^']+)' has no installation candidate"),
        ("version_not_found", r"Version '(?P<version>[^']+)' for '(?P<package>[^']+)' was not found"),
        ("held", r"you have held broken packages|Held packages were changed"),
        ("unmet_dependencies", r"unmet dependencies|Unmet dependencies"),
        ("interrupted", r"dpkg was interrupted, you must manually run"),
        ("dpkg", r"Sub-process \S*dpkg returned an error code \((?P<code>\d+)\)"),
        ("space", r"You don't have enough free space"),
    )
)
_DPKG_PACKAGE = re.compile(r"^dpkg: error processing (?:package|archive) (\S+?)(?::[a-z0-9]+)? \(--([a-z-]+)\):\s*$")
_EXIT_STATUS = re.compile(r"subprocess returned error exit status (\d+)")
_OVERWRITE = re.compile(r"^ trying to overwrite '([^']+)', which is also in package (\S+)")
_DKMS_BUILD = re.compile(r"^Error! Bad return status for module build on kernel: (\S+) \((\S+)\)")
_DKMS_FAILED = re.compile(r"^dkms autoinstall on ([^/\s]+)/(\S+) failed for (.+?)\s*$")
_DKMS_ITEM = re.compile(r"([A-Za-z0-9_.+-]+)\((\d+)\)")
_SUMMARY = re.compile(
    r"^(\d+) upgraded, (\d+) newly installed, (?:(\d+) downgraded, )?(\d+) to remove and (\d+) not upgraded\."
)
# apt 3
_COUNTS = re.compile(
    r"^  Upgrading: (\d+), Installing: (\d+)(?:, Downgrading: (\d+))?, Removing: (\d+), Not Upgrading: (\d+)"
)
_SIMULATED = re.compile(rf"^(Inst|Remv|Purg|Conf) ({_NAME})(?::[a-z0-9]+)?(?: \[([^\]]+)\])?(?: \((\S+) [^)]*\))?")
_UNPACKING = re.compile(rf"^Unpacking ({_NAME})(?::([a-z0-9]+))? \(([^)]+)\)(?: over \(([^)]+)\))? \.\.\.")
_SETTING_UP = re.compile(rf"^Setting up ({_NAME})(?::([a-z0-9]+))? \(([^)]+)\) \.\.\.")
_REMOVING = re.compile(rf"^(Removing|Purging configuration files for) ({_NAME})(?::([a-z0-9]+))? \(([^)]+)\) \.\.\.")
_HISTORY_ITEM = re.compile(rf"({_NAME})(?::([a-z0-9]+))? \(([^()]*)\)")
_HISTORY_ACTIONS = {
    "Install": "install",
    "Reinstall": "reinstall",
    "Upgrade": "upgrade",
    "Downgrade": "downgrade",
    "Remove": "remove",
    "Purge": "purge",
}
_HISTORY_FIELDS = {
    "Start-Date": "start",
    "End-Date": "end",
    "Commandline": "command",
    "Requested-By": "requested_by",
    "Error": "error",
}
_NOTICES = ("W: ", "N: ", "Warning: ", "Notice: ")
_OWN = re.compile(
    r"^(?:[EWN]: |(?:Error|Warning|Notice): |dpkg: |Start-Date: |End-Date: |Commandline: |Error! |dkms "
    r"|(?:Install|Upgrade|Remove|Purge): \S+:"
    r"|\d+ upgraded, |Unpacking |Setting up |Removing |Inst |Conf |Reading )"
)


def parse(text: str) -> Parsed:
    """Read the output of apt or dpkg, or apt's ``history.log``."""
    problems = Problems()
    reader = _Reader(problems)
    for line in read_lines(text, problems, prompts=False, barriers=True, own=_OWN):
        reader.read(line)
    return problems.result(reader.value)


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.value: dict[str, Any] = {
            "errors": [],
            "notices": [],
            "actions": [],
            "failed_packages": [],
            "dkms_failures": [],
            "history": [],
        }
        self.listing = False
        self.package: dict[str, Any] | None = None
        self.entry: dict[str, Any] | None = None

    def read(self, line: Line) -> None:
        if line.damaged:
            self.listing, self.package = False, None
            if not line.text.strip(" \t\ufffd") or ":" not in line.text or line.text.startswith("\ufffd"):
                self.entry = None
            return
        if line.blank:
            self.listing, self.entry = False, None
            return
        if not line.terminated and not re.search(r"error code \(\d+\)$", line.text):
            self.problems.cut(line)
            return
        text = line.text.rstrip()
        if self.listing and re.match(rf"^ ({_NAME})(?::[a-z0-9]+)?$", text):
            self.value["failed_packages"].append(text.strip())
            return
        self.listing = False
        if self._history(text) or self._failure(text) or self._progress(text):
            return
        if text.startswith(_NOTICES):
            self.value["notices"].append(text)

    def _history(self, text: str) -> bool:
        name, colon, rest = text.partition(": ")
        if not colon or (name not in _HISTORY_FIELDS and name not in _HISTORY_ACTIONS):
            return False
        if name == "Start-Date":
            self.entry = {"actions": []}
            self.value["history"].append(self.entry)
        if self.entry is None:
            return False
        if name in _HISTORY_FIELDS:
            self.entry[_HISTORY_FIELDS[name]] = " ".join(rest.split())
            return True
        for package, architecture, versions in _HISTORY_ITEM.findall(rest):
            parts = [part.strip() for part in versions.split(",")]
            action: dict[str, Any] = {"action": _HISTORY_ACTIONS[name], "package": package}
            if architecture:
                action["architecture"] = architecture
            if "automatic" in parts:
                action["automatic"] = True
                parts.remove("automatic")
            if len(parts) == 2:
                action["old_version"], action["version"] = parts
            elif parts:
                action["old_version" if name in ("Remove", "Purge") else "version"] = parts[0]
            self.entry["actions"].append(action)
        return True

    def _failure(self, text: str) -> bool:
        package = _DPKG_PACKAGE.match(text)
        if package:
            self.package = {
                "kind": "dpkg_package",
                "package": package.group(1),
                "phase": package.group(2),
                "text": text,
            }
            self.value["errors"].append(self.package)
            return True
        status = _EXIT_STATUS.search(text)
        overwrite = _OVERWRITE.match(text)
        if overwrite and self.package is not None:
            self.package["path"], self.package["other_package"] = overwrite.groups()
            self.package = None
            return True
        if status and self.package is not None:
            self.package["code"] = int(status.group(1))
            self.package = None
            return True
        if text.startswith("Errors were encountered while processing:"):
            self.listing = True
            return True
        build, failed = _DKMS_BUILD.match(text), _DKMS_FAILED.match(text)
        if build:
            self.value["errors"].append(
                {"kind": "dkms", "kernel": build.group(1), "architecture": build.group(2), "text": text}
            )
            return True
        if failed:
            for module, code in _DKMS_ITEM.findall(failed.group(3)):
                self.value["dkms_failures"].append({"module": module, "kernel": failed.group(1), "code": int(code)})
            return True
        for kind, pattern in _ERRORS:
            match = pattern.search(text)
            if match and not text.startswith(("N: ", "Notice: ")):
                error: dict[str, Any] = {"kind": kind, "text": text}
                for name, found in match.groupdict().items():
                    if found is not None:
                        error[name] = int(found) if name in ("pid", "code") else found.strip()
                self.value["errors"].append(error)
                return True
        if text.startswith(("E: ", "Error: ", "dpkg: error")):
            self.value["errors"].append({"kind": "other", "text": text})
            return True
        return False

    def _progress(self, text: str) -> bool:
        summary = _SUMMARY.match(text) or _COUNTS.match(text)
        if summary:
            if "summary" in self.value:
                self.problems.add("Another run's summary stands here; the first one was kept.", text=text)
                return True
            upgraded, installed, downgraded, removed, kept = summary.groups()
            self.value["summary"] = {
                "upgraded": int(upgraded),
                "newly_installed": int(installed),
                "removed": int(removed),
                "not_upgraded": int(kept),
            }
            if downgraded:
                self.value["summary"]["downgraded"] = int(downgraded)
            return True
        action = self._action(text)
        if action:
            self.value["actions"].append(action)
        return action is not None

    @staticmethod
    def _action(text: str) -> dict[str, Any] | None:
        simulated, unpacking = _SIMULATED.match(text), _UNPACKING.match(text)
        setting, removing = _SETTING_UP.match(text), _REMOVING.match(text)
        found: dict[str, Any]
        if simulated:
            verb, package, old, new = simulated.groups()
            kinds = {"Inst": "upgrade" if old else "install", "Remv": "remove", "Purg": "purge", "Conf": "configure"}
            found = {"action": kinds[verb], "package": package, "version": new, "old_version": old}
        elif unpacking:
            package, architecture, new, old = unpacking.groups()
            found = {
                "action": "upgrade" if old else "install",
                "package": package,
                "architecture": architecture,
                "version": new,
                "old_version": old,
            }
        elif setting:
            package, architecture, new = setting.groups()
            found = {"action": "configure", "package": package, "architecture": architecture, "version": new}
        elif removing:
            verb, package, architecture, old = removing.groups()
            kind = "remove" if verb == "Removing" else "purge"
            found = {"action": kind, "package": package, "architecture": architecture, "old_version": old}
        else:
            return None
        return {key: value for key, value in found.items() if value is not None}


_POLICY_PACKAGE = re.compile(rf"^({_NAME})(?::[a-z0-9]+)?:$")
_POLICY_FIELD = re.compile(r"^  (Installed|Candidate): (\S+)$")
_POLICY_VERSION = re.compile(r"^ (\*\*\*|   ) (\S+) (-?\d+)$")
_POLICY_SOURCE = re.compile(r"^\s{6,}(-?\d+) (\S.*)$")


def parse_policy(text: str) -> Parsed:
    """Read ``apt-cache policy PACKAGE…``.

    Value: {"packages": {name: {"installed", "candidate", "versions": [{"version", "priority", "installed": true,
    "sources": [{"priority", "source"}]}]}}}; a package that is not installed has no ``installed``.
    """
    problems = Problems()
    packages: dict[str, dict[str, Any]] = {}
    package: dict[str, Any] | None = None
    version: dict[str, Any] | None = None
    for line in read_lines(
        text, problems, prompts=False, barriers=True, own=re.compile(r"^  (?:Installed|Candidate):")
    ):
        if line.damaged:
            version = None
            if not line.text.startswith(" "):
                package = None
            continue
        if line.blank:
            continue
        if not line.terminated:
            problems.cut(line)
            continue
        header, field = _POLICY_PACKAGE.match(line.text), _POLICY_FIELD.match(line.text)
        listed, source = _POLICY_VERSION.match(line.text), _POLICY_SOURCE.match(line.text)
        if header:
            package, version = {"versions": []}, None
            packages[header.group(1)] = package
        elif package is None:
            continue
        elif field:
            if field.group(2) != "(none)":
                package[field.group(1).lower()] = field.group(2)
        elif listed:
            version = {"version": listed.group(2), "priority": int(listed.group(3)), "sources": []}
            if listed.group(1) == "***":
                version["installed"] = True
            package["versions"].append(version)
        elif source and version is not None:
            version["sources"].append({"priority": int(source.group(1)), "source": source.group(2).strip()})
    if not packages and text:
        problems.add("There is no answer of apt-cache policy in this text.")
    return problems.result({"packages": packages})
