# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""The machine itself: name, operating system, virtualization, firmware, kernel command line."""

from __future__ import annotations

import re
import shlex
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import TIMED_OUT, Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import text

__all__ = ["COMMANDS", "collect"]

_VM = ("systemd-detect-virt", "--vm")
_CONTAINER = ("systemd-detect-virt", "--container")
_MACHINE = ("uname", "-m")
COMMANDS = (_VM, _MACHINE)
_DMI = "/sys/class/dmi/id"
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
#: systemd's names for what the plan treats alike.
_HYPERVISORS = {"microsoft": "hyperv", "amazon": "kvm", "google": "kvm"}
_CONTAINERS = {
    "docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "openvz", "rkt", "wsl", "proot", "pouch",
    "container-other",
}  # fmt: skip
#: (vendor or product in DMI, hypervisor); a bare-metal instance of a cloud says so in its product name.
_DMI_HYPERVISORS = (
    (re.compile(r"VMware"), "vmware"),
    (re.compile(r"Microsoft Corporation.*Virtual Machine"), "hyperv"),
    (re.compile(r"QEMU|KVM|OpenStack|Bochs|Amazon EC2(?!.*metal)|Google Compute Engine|DigitalOcean|Alibaba"), "kvm"),
    (re.compile(r"Xen"), "xen"),
    (re.compile(r"VirtualBox|innotek"), "oracle"),
    (re.compile(r"Parallels"), "parallels"),
)


def collect(source: Source) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, path in (
        ("hostname", "/proc/sys/kernel/hostname"),
        ("machine_id", "/etc/machine-id"),
        ("boot_id", "/proc/sys/kernel/random/boot_id"),
        ("kernel", "/proc/sys/kernel/osrelease"),
        ("architecture", "/proc/sys/kernel/arch"),
    ):
        value = text(source, path)
        if value is not None:
            found[key] = value
    if "hostname" not in found:
        name = text(source, "/etc/hostname") or source.name
        if name is not None:
            found["hostname"] = name
    for key, argv in (("kernel", ("uname", "-r")), ("architecture", _MACHINE)):
        if key not in found:
            output = source.run(argv)
            # A recording may hold a warning first and ends with the answer.
            lines = output.stdout.split() if output is not None and output.rc == 0 else []
            if lines:
                found[key] = lines[-1]
    sections: dict[str, Any] = {
        "os": _os(source),
        "product": _product(source),
        "virtualization": _virtualization(source),
        "container": _container(source),
        "cmdline": _cmdline(source),
        "secure_boot": _secure_boot(source),
        "enrolled_keys": _enrolled_keys(source),
        "uptime_s": _uptime(source),
        "euid": _euid(source),
        "cpus": _cpus(source),
        "numa_nodes": _numa_nodes(source),
        "numa_cpus": _numa_cpus(source),
        "cpu_governor": text(source, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "reboot_required": source.exists("/run/reboot-required") if source.live else None,
    }
    found.update({key: value for key, value in sections.items() if value is not None and value != {}})
    return found


def _euid(source: Source) -> Optional[int]:
    """The effective user of what reads the facts, and so of what would change the host."""
    for line in (source.read("/proc/self/status") or "").splitlines():
        words = line.split()
        if words[:1] == ["Uid:"] and len(words) > 2 and words[2].isdigit():
            return int(words[2])
    return None


def _os(source: Source) -> dict[str, Any]:
    told: dict[str, str] = {}
    for line in (source.read("/etc/os-release") or source.read("/usr/lib/os-release") or "").splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith("#"):
            told[key] = value.strip("\"'")
    found: dict[str, Any] = {}
    for name, key in (("id", "ID"), ("version_id", "VERSION_ID"), ("codename", "VERSION_CODENAME")):
        if told.get(key):
            found[name] = told[key]
    if told:
        found["id_like"] = told.get("ID_LIKE", "").split()
        found["name"] = told.get("PRETTY_NAME", told.get("NAME", ""))
    return found


def _product(source: Source) -> dict[str, Any]:
    found = {}
    for key, attribute in (("vendor", "sys_vendor"), ("name", "product_name"), ("bios_version", "bios_version")):
        value = text(source, f"{_DMI}/{attribute}")
        if value is not None:
            found[key] = value
    return found


def _detected(source: Source, argv: tuple[str, ...]) -> Optional[str]:
    """systemd's own answer; it exits with 1 when that is `none`."""
    output = source.run(argv)
    if output is None and not source.live:
        output = source.run(argv[:1])
    words = output.stdout.split() if output is not None else []
    return words[-1] if words and re.fullmatch(r"[a-z-]+", words[-1]) else None


def _virtualization(source: Source) -> Optional[str]:
    detected = _detected(source, _VM)
    if detected is not None and detected not in _CONTAINERS:
        return _HYPERVISORS.get(detected, detected)
    product = _product(source)
    dmi = f"{product.get('vendor', '')} {product.get('name', '')}"
    for pattern, hypervisor in _DMI_HYPERVISORS:
        if pattern.search(dmi):
            return hypervisor
    paravirtual = text(source, "/sys/hypervisor/type")
    if paravirtual is not None:
        return paravirtual
    asked = source.run(_VM)
    if asked is not None and asked.rc == TIMED_OUT:
        # The flag below is a guess for hosts without systemd. Here the answer is lacking only, and a wrong one would
        # have the plan take settings away from a port.
        return None
    for line in (source.read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("flags"):
            return "other" if " hypervisor" in line else "none"
    # An ARM machine has no such flag; a firmware that names a maker of hardware is all there is.
    return "none" if product.get("vendor") and product.get("name") else None


def _container(source: Source) -> Optional[bool]:
    if any(source.exists(path) for path in ("/run/.containerenv", "/.dockerenv", "/run/systemd/container")):
        return True
    detected = _detected(source, _CONTAINER)
    if detected is not None:
        return detected in _CONTAINERS
    return False if source.live else None


def _cmdline(source: Source) -> Optional[list[str]]:
    line = text(source, "/proc/cmdline")
    if line is None:
        return None
    try:
        return shlex.split(line)
    except ValueError:  # a quote that is never closed
        return line.split()


def _secure_boot(source: Source) -> Optional[bool]:
    variable = source.read_bytes(_SECURE_BOOT, 16)
    if variable is not None and len(variable) == 5:  # four bytes of attributes, one of value
        return variable[4] == 1
    output = source.run(("mokutil", "--sb-state"))
    told = output.text if output is not None else ""
    for answer, state in (("SecureBoot enabled", True), ("SecureBoot disabled", False)):
        if answer in told:
            return state
    if source.live and source.isdir("/sys/firmware") and not source.exists("/sys/firmware/efi"):
        return False
    return None


def _enrolled_keys(source: Source) -> Optional[list[str]]:
    """Whose keys the machine's owner enrolled for signing modules; asked only where the firmware checks signatures."""
    if not _secure_boot(source):
        return None
    output = source.run(("mokutil", "--list-enrolled"))
    if output is None or output.rc != 0:
        return None
    lines = (line.strip() for line in output.stdout.splitlines())
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Subject:")]


def _uptime(source: Source) -> Optional[float]:
    fields = (source.read("/proc/uptime") or "").split()
    try:
        return float(fields[0]) if fields else None
    except ValueError:
        return None


def _cpus(source: Source) -> Optional[int]:
    listed = text(source, "/sys/devices/system/cpu/online")
    if listed is None:
        return None
    count = 0
    for span in listed.split(","):
        first, _, last = span.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return None
        count += int(last or first) - int(first) + 1
    return count


def _numa_cpus(source: Source) -> dict[str, str]:
    """CPUs of each NUMA node, as lists; of a recording also from lscpu."""
    found = {}
    for name in source.listdir("/sys/devices/system/node"):
        cpus = text(source, f"/sys/devices/system/node/{name}/cpulist") if re.fullmatch(r"node\d+", name) else None
        if cpus:
            found[name[len("node") :]] = cpus
    if not found and not source.live:
        output = source.run(("lscpu",))
        told = output.stdout if output is not None else ""
        found = dict(re.findall(r"^NUMA node(\d+) CPU\(s\):\s+([\d,-]+)\s*$", told, re.MULTILINE))
    return found


def _numa_nodes(source: Source) -> Optional[int]:
    names = source.listdir("/sys/devices/system/node")
    return sum(1 for name in names if re.fullmatch(r"node\d+", name)) or None
