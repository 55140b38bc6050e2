# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Writing a support bundle: everything that the facts read on a host, and what else a diagnosis wants.

The recorder is a source that remembers: the facts are gathered from it, and what was read is what is recorded. So the
facts of a bundle are the facts of its host, without a second list of files to keep in step.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._bundle import bundle_name
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.files import redact
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.packages import concerns
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import (
    COMMANDS_FILE,
    LiveSource,
    Output,
    host_path,
)

__all__ = ["EXTRA", "SUBNET", "Recorder", "missing_tools", "record_extra", "record_subnet", "write_archive"]

#: Environments hold whatever their owner put there, tokens first.
_NEVER = re.compile(r"^/proc/[^/]+/environ$")
#: Configuration of networks, where keys of radio networks and of 802.1X stand.
_NETWORK = ("/etc/netplan/", "/etc/systemd/network/", "/etc/network/", "/etc/sysconfig/network", "/etc/NetworkManager/")
_KEYS = re.compile(
    r"""^(.*?["']?(?:[\w-]*(?:psk|passw|secret|private-?key|wep-?key|pin)[\w-]*|key)["']?\s*[:=]?[ \t]*)\S.*$""",
    re.IGNORECASE | re.MULTILINE,
)
_OUTPUT_LIMIT = 8 * 1024 * 1024


class Extra(NamedTuple):
    """A command that a diagnosis wants and the facts do not."""

    argv: tuple[str, ...]
    timeout: float = 20.0
    #: Only lines that match are kept.
    keep: Optional[str] = None


EXTRA = (
    Extra(("nvidia-smi",), 40),
    Extra(("nvidia-smi", "-q"), 40),
    Extra(("nvidia-smi", "--query-gpu=index,pci.bus_id,name,uuid,driver_version", "--format=csv"), 40),
    Extra(("nvidia-smi", "nvlink", "-s"), 40),
    Extra(("ibdev2netdev", "-v"), 40),
    Extra(("show_gids",), 60),
    Extra(("ibv_devinfo", "-v")),
    Extra(("rdma", "link")),
    Extra(("lspci", "-vvv"), 40),
    Extra(("lsmod",)),
    Extra(("sysctl", "-a")),
    Extra(("ip", "-br", "addr")),
    Extra(("ip", "-br", "link")),
    Extra(("ip", "route", "show", "table", "all")),
    Extra(("dkms", "status")),
    Extra(("mokutil", "--sb-state")),
    Extra(("uname", "-r")),
    Extra(("systemd-detect-virt",)),
    Extra(("srun", "--mpi=list")),
)
#: The InfiniBand subnet as one of its hosts sees it: who is cabled to whom, at which rate, with which errors.
SUBNET = {"ibnetdiscover": 300.0, "iblinkinfo": 600.0, "ibqueryerrors": 600.0}
_INITRAMFS = r"nouveau|nvidia|mlx[45]|/ib_"
_APT_HISTORY = "/var/log/apt/history.log"
_HISTORY_LINES = 400


class Recorder(LiveSource):
    """This machine, remembering what was read of it."""

    def __init__(self, root: str = "/", environ: Optional[Mapping[str, str]] = None) -> None:
        super().__init__(root, environ)
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.folders: set[str] = set()
        self.outputs: dict[str, str] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        self._recording = threading.Lock()

    # --- files ---------------------------------------------------------------------------------

    def read_bytes(self, path: str, limit: int, quiet: bool = False) -> Optional[bytes]:
        data = super().read_bytes(path, limit, quiet)
        resolved = self._resolved(path)
        if data is not None and resolved is not None and not _NEVER.match(resolved):
            with self._recording:
                self.files[resolved] = data
        return data

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        resolved = self._resolved(path) if found else None
        if resolved is not None:
            with self._recording:
                if os.path.isdir(os.path.join(self.root, resolved.lstrip("/"))):
                    self.folders.add(resolved)
                else:
                    self.files.setdefault(resolved, b"")
        return found

    def isdir(self, path: str) -> bool:
        return super().isdir(path) and self.exists(path)

    def listdir(self, path: str) -> list[str]:
        names = super().listdir(path)
        resolved = self._resolved(path)
        if resolved is not None and names:
            with self._recording:
                self.folders.add(resolved)
        return names

    def realpath(self, path: str) -> Optional[str]:
        return self._resolved(path)

    def _resolved(self, path: str) -> Optional[str]:
        links: dict[str, str] = {}
        resolved = host_path(self.root, path, links.__setitem__)
        if resolved is not None:
            with self._recording:
                self.links.update(links)
        return resolved

    # --- commands ------------------------------------------------------------------------------

    def tool(self, name: str) -> Optional[str]:
        path = super().tool(name)
        if path is not None:
            with self._recording:  # that it is there, not what it is
                self.files.setdefault(path[len(self.root) :] if self.root != "/" else path, b"")
        return path

    def _run(self, argv: tuple[str, ...], timeout: float) -> Optional[Output]:
        output = super()._run(argv, timeout)
        if output is not None and output.text:
            with self._recording:
                name = bundle_name(argv)[0]
                self.outputs[name] = output.text[:_OUTPUT_LIMIT]
                self.commands[name] = {"argv": list(argv), "rc": output.rc}
        return output


def record_extra(source: Recorder) -> None:
    """Ask what the facts do not ask. A tool that is missing is left out."""
    ports = [name for name in source.listdir("/sys/class/net") if source.exists(f"/sys/class/net/{name}/device")]
    per_port = [Extra(("ethtool", *options, name)) for name in ports for options in ((), ("-i",), ("-S",), ("-m",))]
    initramfs = f"/boot/initrd.img-{(source.read('/proc/sys/kernel/osrelease') or '').strip()}"
    wanted = [*EXTRA, *per_port]
    if source.exists(initramfs):
        wanted.append(Extra(("lsinitramfs", initramfs), 60, _INITRAMFS))
        source.files.pop(initramfs, None)  # that it is there is enough
    source.map(lambda extra: source.run(extra.argv, extra.timeout), wanted)
    for extra in wanted:
        name = bundle_name(extra.argv)[0]
        if extra.keep is not None and name in source.outputs:
            lines = source.outputs.pop(name).splitlines()
            source.outputs["lsinitramfs.txt"] = "".join(
                f"{line}\n" for line in lines if re.search(extra.keep, line) is not None
            )
    history = source.read(_APT_HISTORY)
    if history is not None:
        source.files.pop(_APT_HISTORY, None)
        source.outputs["apt_history.log"] = "\n".join(history.splitlines()[-_HISTORY_LINES:]) + "\n"


def subnet_port(facts: Mapping[str, Any]) -> Optional[tuple[str, str]]:
    """The first active InfiniBand port of the host; never a function behind which NVSwitches are managed."""
    for name, device in sorted(facts.get("rdma_devices", {}).items()):
        bridge = facts.get("pci", {}).get(device.get("pci"), {}).get("vpd", {}).get("sw_mng")
        for number, port in sorted(device.get("ports", {}).items()):
            if not bridge and port.get("link_layer") == "InfiniBand" and port.get("state") == "active":
                return name, number
    return None


def record_subnet(source: Recorder, facts: Mapping[str, Any]) -> bool:
    """Ask the fabric's tools through a port of this host; False where it has none."""
    port = subnet_port(facts)
    if port is None:
        return False
    # One after another: each walks the whole subnet.
    for tool, timeout in SUBNET.items():
        argv = (tool, "-C", port[0], "-P", port[1])
        source.run(argv, timeout)
        for recorded in (source.outputs, source.commands):
            # The port is of no interest to the reader of a bundle.
            said = recorded.pop(bundle_name(argv)[0], None)
            if said is not None:
                recorded[f"{tool}.txt"] = said
    return True


def write_archive(source: Recorder, stream: Any, prefix: str = "") -> list[str]:
    """Write what was recorded as `tar.gz`; names of what it holds. Links stay links and lead nowhere outside."""
    names = []
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:

        def add(name: str, data: Optional[bytes] = None, target: Optional[str] = None) -> None:
            entry = tarfile.TarInfo(f"{prefix}{name}")
            entry.mode = 0o644
            if target is not None:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            elif data is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            else:
                entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data) if data is not None else None)
            names.append(entry.name)

        for name in sorted(source.outputs):
            add(name, redact(source.outputs[name]).encode())
        add(COMMANDS_FILE, json.dumps(source.commands, indent=1, sort_keys=True).encode())
        for path in sorted(source.folders):
            add(f"root{path}")
        for path in sorted(source.links):
            add(f"root{path}", target=_relative(path, source.links[path]))
        for path in sorted(source.files):
            if path not in source.folders:
                add(f"root{path}", _filtered(path, source.files[path]))
    return names


def _relative(path: str, target: str) -> str:
    return os.path.relpath(target, os.path.dirname(path)) if target.startswith("/") else target


def _filtered(path: str, data: bytes) -> bytes:
    """Without passwords, and without the packages that are nobody's business here."""
    if path == "/var/lib/dpkg/status":
        text = data.decode("utf-8", "replace")
        kept = [part for part in text.split("\n\n") if concerns(part.split("\n", 1)[0].partition(": ")[2].strip())]
        data = ("\n\n".join(kept) + "\n").encode()
    if path.startswith("/sys/"):
        return data  # product data and registers are no text
    text = redact(data.decode("utf-8", "surrogateescape"))
    if path.startswith(_NETWORK):
        text = _KEYS.sub(r"\1***", text)
    return text.encode("utf-8", "surrogateescape")


def missing_tools(source: Recorder, commands: Sequence[Extra] = EXTRA) -> list[str]:
    """Tools that were asked for and are not installed."""
    return sorted({extra.argv[0] for extra in commands if source.tool(extra.argv[0]) is None})
