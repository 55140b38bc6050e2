# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Resource limits: of PID 1, of services as they run, of logins as configured, and systemd's defaults."""

from __future__ import annotations

import re
from typing import Any, Optional, Union

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import services
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["COMMANDS", "collect", "parse_limits_conf", "parse_process_limits"]

_DEFAULTS = ("systemctl", "show", "--property=DefaultLimitMEMLOCK,DefaultLimitNOFILE")
COMMANDS = (_DEFAULTS,)
_ROWS = {"Max locked memory": "memlock", "Max open files": "nofile"}
_ITEMS = ("memlock", "nofile", "stack", "nproc")
_INFINITY = 2**64 - 1
Limit = Union[int, str, None]


def collect(source: Source) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pid1 = parse_process_limits(source.read("/proc/1/limits") or "")
    if pid1:
        found["pid1"] = pid1
    raisable = _raisable(source.read("/proc/1/status") or "")
    if raisable is not None:
        found["raisable"] = raisable
    running = {}
    for unit, told in services.properties(source).items():
        entry = _service(source, told)
        if entry:
            # Debian calls the unit ssh, everybody else sshd; the plan says sshd.
            running["sshd" if unit == "ssh" else unit] = entry
    if running:
        found["services"] = running
    if not source.live:
        known = {str(entry.get("pid")) for entry in running.values()}
        recorded = {
            pid: _process(source, pid)
            for pid in source.listdir("/proc")
            if pid.isdecimal() and pid != "1" and pid not in known
        }
        if any(recorded.values()):
            found["processes"] = {pid: limits for pid, limits in recorded.items() if limits}
    login = _login(source)
    if login is not None:
        found["login"] = login
    defaults = _defaults(source)
    if defaults:
        found["systemd_default"] = defaults
    return found


def _process(source: Source, pid: str) -> dict[str, Any]:
    found = parse_process_limits(source.read(f"/proc/{pid}/limits") or "")
    name = (source.read(f"/proc/{pid}/comm") or (source.read(f"/proc/{pid}/cmdline") or "").partition("\0")[0]).strip()
    return {**found, "name": name.rpartition("/")[2]} if found and name else found


def _raisable(status: str) -> Optional[bool]:
    """Whether PID 1, and so whatever it starts, may raise hard limits (CAP_SYS_RESOURCE, bit 24)."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 24 & 1)
    return None


def parse_process_limits(text: str) -> dict[str, Any]:
    """`/proc/<pid>/limits`: `Max locked memory         unlimited            unlimited            bytes`."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        for label, name in _ROWS.items():
            if not line.startswith(label):
                continue
            fields = line[len(label) :].split()
            if len(fields) >= 2:
                found[name] = {"soft": _limit(fields[0]), "hard": _limit(fields[1])}
    if "memlock" in found:
        found["memlock_bytes"] = found["memlock"]["soft"]
    return found


def _limit(word: str) -> Limit:
    if word in ("unlimited", "infinity", "-1"):
        return "unlimited"
    if not word.isdecimal():
        return None
    return "unlimited" if int(word) >= _INFINITY else int(word)


def _service(source: Source, told: dict[str, str]) -> dict[str, Any]:
    """Limits of the running main process; the unit's own for one that does not run."""
    found: dict[str, Any] = {}
    pid = told.get("MainPID", "0")
    if pid.isdecimal() and pid != "0":
        found["pid"] = int(pid)
        found.update(parse_process_limits(source.read(f"/proc/{pid}/limits") or ""))
    configured = {}
    for name, label in (("memlock", "LimitMEMLOCK"), ("nofile", "LimitNOFILE")):
        value = _limit(told.get(label, ""))
        if value is not None:
            configured[name] = value
    if configured:
        found["configured"] = configured
    return found


def _defaults(source: Source) -> dict[str, Any]:
    output = source.run(_DEFAULTS)
    found: dict[str, Any] = {}
    for line in (output.stdout if output is not None else "").splitlines():
        key, _, value = line.partition("=")
        name = {"DefaultLimitMEMLOCK": "memlock", "DefaultLimitNOFILE": "nofile"}.get(key)
        limit = _limit(value.strip())
        if name and limit is not None:
            found[name] = limit
    return found


def _login(source: Source) -> Optional[dict[str, Any]]:
    """What pam_limits gives a login: later files and later lines win; `*` does not cover root."""
    paths = ["/etc/security/limits.conf"]
    directory = "/etc/security/limits.d"
    paths.extend(f"{directory}/{name}" for name in source.listdir(directory) if name.endswith(".conf"))
    texts = [text for text in (source.read(path) for path in paths) if text is not None]
    if not texts:
        return None
    domains: dict[str, dict[str, dict[str, Limit]]] = {}
    for text in texts:
        for domain, kind, item, value in parse_limits_conf(text):
            if item not in _ITEMS:
                continue
            entry = domains.setdefault(domain, {}).setdefault(item, {})
            for bound in ("soft", "hard") if kind == "-" else (kind,):
                entry[bound] = value
    return domains


def parse_limits_conf(text: str) -> list[tuple[str, str, str, Limit]]:
    """(domain, soft|hard|-, item, value); memlock and stack in bytes, though the file has them in KiB."""
    found = []
    for line in text.splitlines():
        fields = re.sub(r"#.*", "", line).split()
        if len(fields) != 4 or fields[1] not in ("soft", "hard", "-"):
            continue
        value = _limit(fields[3])
        if isinstance(value, int) and fields[2] in ("memlock", "stack"):
            value *= 1024
        found.append((fields[0], fields[1], fields[2], value))
    return found
