# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""The program as it lies on the host: its source files, its command and its unit. Pure but for reading sources."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import HEADER, Failure

PACKAGE = "ansible_collections.railyard.gpu_fabric.plugins.module_utils."
PROGRAM = f"{PACKAGE}_nic.program"
LIBRARY = "/usr/local/lib/gpu-fabric"
COMMAND = "/usr/local/sbin/gpu-fabric-nic"
UNIT = "gpu-fabric-nic@.service"
HOST_UNIT = "gpu-fabric-host.service"
RULES = "/etc/udev/rules.d/95-gpu-fabric-nic.rules"
#: In the first line of every source; an earlier version had no other mark in the library.
COPYRIGHT = "(c) 2026 Railyard maintainers"

COMMAND_TEXT = f"""\
#!/usr/bin/env python3
{HEADER}import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "{LIBRARY}")

from {PROGRAM} import main

sys.exit(main())
"""

# It does not remain active: a port that appears again starts it again.
UNIT_TEXT = f"""\
{HEADER}[Unit]
Description=Run-time settings of the fabric port %i
After=sys-subsystem-net-devices-%i.device openibd.service rdma-hw.target network-pre.target
Before=slurmd.service kubelet.service
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={COMMAND} apply %i

[Install]
WantedBy=multi-user.target
"""


HOST_UNIT_TEXT = f"""\
{HEADER}[Unit]
Description=Run-time settings of a fabric host
After=systemd-udev-settle.service nvidia-persistenced.service tuned.service
Before=slurmd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={COMMAND} apply @host

[Install]
WantedBy=multi-user.target
"""


def instance(netdev: str) -> str:
    return UNIT.replace("@", f"@{netdev}")


def rules(ports: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    """Rules for udev: a function whose driver was loaded anew, or that was reset, has forgotten its settings.

    By the PCI function, which a new name does not change; by the adapter, too, which comes later and, in a bond, anew.
    """
    lines = [
        f'ACTION=="add", SUBSYSTEM=="net|infiniband", KERNELS=="{port["pci"]}", TAG+="systemd", '
        f'ENV{{SYSTEMD_WANTS}}+="{instance(port["netdev"])}"\n'
        for port in ports
        if port["pci"]
    ]
    return "".join([HEADER, *lines])


def source_of(name: str) -> str:
    spec = importlib.util.find_spec(name)
    source = spec.loader.get_source(name) if spec and spec.loader else None  # type: ignore[attr-defined]
    if source is None:
        raise Failure(f"Cannot find the source of {name}, of which {COMMAND} is made")
    return str(source)


def imports_of(source: str) -> set[str]:
    """Return the modules of this collection that a source imports; ``from package import module`` counts as both."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.rstrip(".")):
            names.add(str(node.module))
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith(PACKAGE)}


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError):
        return False


def library() -> dict[str, str]:
    """Return the source files of the program by their path on the host: all that it imports of this collection.

    Packages need no ``__init__.py`` there: Python takes folders for namespace packages.
    """
    todo, files = [PROGRAM], {}
    while todo:
        name = todo.pop()
        path = f"{LIBRARY}/{name.replace('.', '/')}.py"
        if path in files or not is_module(name) or is_package(name):
            continue
        files[path] = HEADER + source_of(name)
        todo += imports_of(files[path])
    return dict(sorted(files.items()))


def is_package(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def digest(files: dict[str, str]) -> str:
    """Return one line that tells two versions of the program apart."""
    text = "\0".join(f"{path}\0{content}" for path, content in sorted(files.items()))
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}, {len(files)} files"


__all__ = (
    "COMMAND",
    "COMMAND_TEXT",
    "COPYRIGHT",
    "HOST_UNIT",
    "HOST_UNIT_TEXT",
    "LIBRARY",
    "RULES",
    "UNIT",
    "UNIT_TEXT",
    "digest",
    "instance",
    "library",
    "rules",
)
