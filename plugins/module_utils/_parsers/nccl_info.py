# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of NCCL (``NCCL_DEBUG=WARN`` or ``INFO``), of one process or of a whole job, with launcher prefixes or without.

Value (lists name the ``host`` that said it; what all ranks repeat is there once)::

    {"nccl_version", "nccl_cuda_version", "versions": [...], "cuda_driver_version": 12020, "hosts": [...],
     "bootstrap": [{"host", "netdev", "address"}],
     "networks": [{"host", "network": "IB"|"Socket"|...}],
     "net_ib": [{"host", "devices": [{"index", "name", "port", "link_layer": "IB"|"RoCE", "sharp": bool}],
                 "relaxed_ordering": bool, "oob_netdev", "oob_address"}],
     "net_socket": [{"host", "interfaces": [{"index", "netdev", "address"}]}],
     "no_ib_device": [hosts],
     "plugins": [{"host", "kind": "path"|"loaded"|"missing"|"provider"|"other", "name", "text"}],
     "env": [{"host", "name", "value"}],
     "gpudirect": [{"host", "enabled": bool, "hca", "hca_index", "gpu", "text"}], "dmabuf": [{"host", "gpu"}],
     "channels": [{"host", "channel", "from_rank", "to_rank", "direction": "send"|"receive", "transport": "NET/IB",
                   "net_device", "gpudirect": bool}],
     "communicators": [{"host", "rank", "ranks", "cuda_device", "nvml_device", "bus_id", "id",
                        "state": "start"|"complete"}],
     "warns": [{"host", "rank_gpu", "source", "kind", "text", …}]}

Kinds of ``warns`` and what they carry: ``completion_error`` (peer, status, opcode, length, vendor_error, local_gid,
remote_gid, hca), ``async_event`` (event, code, device, port), ``connect_failed`` (peer, reason), ``cuda_failure``
(code, reason), ``verbs_failure`` (call, reason), ``topology_import``, ``nvls``, ``other``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Line, Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_ENTRY = re.compile(
    r"(?:^|[\s\]]|>: ?)([A-Za-z0-9][\w.-]*):(\d+):(\d+) \[(-?\d+)\] (?:([\w./-]+:\d+) )?NCCL (INFO|WARN|TRACE"
    r"|ABORT) (.*)$"
)
_VERSION = re.compile(r"\bNCCL version (\d+(?:\.\d+)+[\w.]*?)(?:\+cuda(\d+(?:\.\d+)*))?\s*$")
_ADDRESS = r"([\w.@-]+):(\[?[0-9a-fA-F:.%]+\]?|\S+)<\d+>"
_BOOTSTRAP = re.compile(rf"^Bootstrap ?:? ?:? Using {_ADDRESS}")
_NETWORK = re.compile(r"^(?:Using network|Assigned NET plugin) (\S.*?)(?: to comm)?\s*$")
_NET_IB = re.compile(r"^NET/IB ?: Using (.*?)(?:; ?OOB|; OOB|$)")
_IB_DEVICE = re.compile(r"\[(\d+)\]\s*([^\s:\[\]{}]+):(\d+)((?:/[A-Za-z]+)*)")
_OOB = re.compile(rf"; ?OOB {_ADDRESS}")
_SOCKET_INTERFACE = re.compile(r"\[(\d+)\]([\w.@-]+):(\S+?)<\d+>")
_ENV = (
    re.compile(r"^(NCCL_\w+) set by environment to (.*?)\.?\s*$"),
    re.compile(r"^(NCCL_\w+) set to (.*?)\.?\s*$"),
    re.compile(r"^(NCCL_\w+): set by environment to (.*?)\.?\s*$"),
)
_CHANNEL = re.compile(
    r"^Channel (\d+)(?:/\d+)? : (\d+)(?:\[\w+\])? -> (\d+)(?:\[\w+\])?(?: \[(send|receive)\])? via "
    r"(P2P/(?:direct pointer|\S+)|SHM/\S+|SHM|NET/[\w .-]+?|C2C\S*|DIRECT\S*|COLLNET/\S+)"
    r"(?:/(\d+))?(?:\((\d+)\))?((?:/[\w()]+)*)\s*$"
)
_COMMUNICATOR = re.compile(
    r"\bcomm 0x[0-9a-f]+ rank (\d+) n[Rr]anks (\d+) cudaDev (\d+)(?: nvmlDev (\d+))?(?: busId ([0-9a-f]+))?"
    r"(?: commId (0x[0-9a-f]+))?.*- Init (START|COMPLETE)"
)
_GDR_HCA = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled|\(nvidia-peermem\) (?:enabled|disabled)) for HCA (\d+) '([^']+)'"
)
_GDR_GPU = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for (?:GPU (\S+) / )?HCA (\S+) \(distance")
_DMABUF = re.compile(r"^DMA-BUF is available on GPU device (\d+)\s*$")
_PLUGIN_PATH = re.compile(r"^Plugin Path : (\S+)\s*$")
_PLUGIN_NAME = re.compile(r"^(?:P2P plugin (\S+)|NET/Plugin ?: Loaded (?:net )?plugin (\S.*?))\s*$")
_PLUGIN_MISSING = re.compile(r"^NET/Plugin ?: (?:Could not find:? ?(\S*?)\.?(?:\s|$)|No plugin found)")
_PROVIDER = re.compile(r"^NET/OFI Selected [Pp]rovider is ([\w;-]+)")
_COMPLETION = re.compile(r"Got completion (?:from peer (\S+?)(?:<\d+>)? )?with (?:error|status)")
_ASYNC = re.compile(
    r"(?:(\S+):(\d+) )?(?:Got )?(?:(?:non-)?fatal )?async (?:fatal )?event\b.*?: (\S.*?)(?:\((\d+)\))?\s*$"
)
# "status=12", "error 12,", "status=IBV_WC_RETRY_EXC_ERR(12)"
_COMPLETION_NUMBERS = (
    ("status", re.compile(r"(?:status=|with error )(?:\w+\()?(\d+)")),
    ("opcode", re.compile(r"opcode[= ](?:\w+\()?(-?\d+)")),
    ("length", re.compile(r"\blen[= ](-?\d+)")),
    ("vendor_error", re.compile(r"vendor[ _]err[= ](\d+)")),
)
_LOCAL_GID = re.compile(r"localGids? ?([0-9a-fA-F:.]+)")
_REMOTE_GID = re.compile(r"remoteGids? ?([0-9a-fA-F:.]+)")
_HCA = re.compile(r"\bhca (\S+)")
_CONNECT = re.compile(r"(?:Connect to|connect to) (\S+?)<(\d+)>.*? failed : (.+?)\s*$")
_CUDA = re.compile(r"Cuda failure (?:(\d+) )?'([^']*)'")
_VERBS = re.compile(r"Call to (ibv_\w+) failed(?: with error (.+?))?\s*$|(ibv_\w+) failed with (?:error )?(.+?)\s*$")


def parse(text: str) -> Parsed:
    """Read a log of NCCL."""
    problems = Problems()
    reader = _Reader()
    for line in read_lines(text, problems, prompts=False, own=_ENTRY):
        if line.blank:
            continue
        if line.terminated:
            reader.read(line)
        else:
            problems.cut(line)
    if not reader.seen:
        problems.add("There is no line of NCCL in this text.")
    return problems.result(reader.result())


class _Reader:
    def __init__(self) -> None:
        self.seen = False
        self.value: dict[str, Any] = {"versions": [], "hosts": []}
        self.lists: dict[str, list[Any]] = {
            name: []
            for name in (
                "bootstrap",
                "networks",
                "net_ib",
                "net_socket",
                "no_ib_device",
                "plugins",
                "env",
                "gpudirect",
                "dmabuf",
                "channels",
                "communicators",
                "warns",
            )
        }
        self._known: set[tuple[str, str]] = set()

    def read(self, line: Line) -> None:
        version = _VERSION.search(line.text)
        if version:
            self.seen = True
            self._version(version)
            return
        entry = _ENTRY.search(line.text)
        if not entry:
            return
        self.seen = True
        host, _pid, _tid, gpu, source, level, message = entry.groups()
        if host not in self.value["hosts"]:
            self.value["hosts"].append(host)
        if level == "WARN":
            self._warn(host, int(gpu), source, message.strip())
        else:
            self._info(host, message.strip())

    def _add(self, name: str, item: Any) -> None:
        """Ranks repeat what their host has to say: each thing once."""
        key = (name, repr(item))
        if key not in self._known:
            self._known.add(key)
            self.lists[name].append(item)

    def _version(self, match: re.Match[str]) -> None:
        version = match.group(1)
        if version not in self.value["versions"]:
            self.value["versions"].append(version)
        if "nccl_version" not in self.value:
            self.value["nccl_version"] = version
            if match.group(2):
                self.value["nccl_cuda_version"] = match.group(2)

    def _info(self, host: str, text: str) -> None:
        for pattern, method in self._INFO:
            match = pattern.search(text)
            if match:
                method(self, host, match, text)
                return
        for pattern in _ENV:
            match = pattern.match(text)
            if match:
                self._add("env", {"host": host, "name": match.group(1), "value": match.group(2)})
                return

    def _bootstrap(self, host: str, match: re.Match[str], _text: str) -> None:
        self._add("bootstrap", {"host": host, "netdev": match.group(1), "address": match.group(2).strip("[]")})

    def _driver(self, _host: str, match: re.Match[str], _text: str) -> None:
        self.value.setdefault("cuda_driver_version", int(match.group(1)))

    def _network(self, host: str, match: re.Match[str], _text: str) -> None:
        self._add("networks", {"host": host, "network": match.group(1)})

    def _net_ib(self, host: str, match: re.Match[str], text: str) -> None:
        devices = []
        for index, name, port, suffix in _IB_DEVICE.findall(match.group(1)):
            words = [word for word in suffix.split("/") if word]
            device: dict[str, Any] = {"index": int(index), "name": name, "port": int(port), "sharp": "SHARP" in words}
            layers = [word for word in words if word in ("IB", "RoCE")]
            if layers:
                device["link_layer"] = layers[0]
            devices.append(device)
        entry: dict[str, Any] = {"host": host, "devices": devices, "relaxed_ordering": "[RO]" in match.group(1)}
        oob = _OOB.search(text)
        if oob:
            entry["oob_netdev"], entry["oob_address"] = oob.group(1), oob.group(2).strip("[]")
        self._add("net_ib", entry)

    def _no_ib(self, host: str, _match: re.Match[str], _text: str) -> None:
        self._add("no_ib_device", host)

    def _net_socket(self, host: str, match: re.Match[str], _text: str) -> None:
        interfaces = [
            {"index": int(index), "netdev": netdev, "address": address.strip("[]")}
            for index, netdev, address in _SOCKET_INTERFACE.findall(match.group(1))
        ]
        self._add("net_socket", {"host": host, "interfaces": interfaces})

    def _plugin_path(self, host: str, match: re.Match[str], text: str) -> None:
        self._add("plugins", {"host": host, "kind": "path", "name": match.group(1), "text": text})

    def _plugin_name(self, host: str, match: re.Match[str], text: str) -> None:
        self._add("plugins", {"host": host, "kind": "loaded", "name": match.group(1) or match.group(2), "text": text})

    def _plugin_missing(self, host: str, match: re.Match[str], text: str) -> None:
        plugin = {"host": host, "kind": "missing", "text": text}
        if match.group(1):
            plugin["name"] = match.group(1)
        self._add("plugins", plugin)

    def _provider(self, host: str, match: re.Match[str], text: str) -> None:
        self._add("plugins", {"host": host, "kind": "provider", "name": match.group(1), "text": text})

    def _plugin_other(self, host: str, _match: re.Match[str], text: str) -> None:
        self._add("plugins", {"host": host, "kind": "other", "text": text})

    def _gdr_hca(self, host: str, match: re.Match[str], text: str) -> None:
        self._add(
            "gpudirect",
            {
                "host": host,
                "enabled": "enabled" in match.group(1).lower(),
                "hca_index": int(match.group(2)),
                "hca": match.group(3),
                "text": text,
            },
        )

    def _gdr_gpu(self, host: str, match: re.Match[str], text: str) -> None:
        entry: dict[str, Any] = {"host": host, "enabled": match.group(1) == "Enabled", "text": text}
        if match.group(2):
            entry["gpu"] = match.group(2)
        if match.group(3).isdigit():
            entry["hca_index"] = int(match.group(3))
        self._add("gpudirect", entry)

    def _dmabuf(self, host: str, match: re.Match[str], _text: str) -> None:
        self._add("dmabuf", {"host": host, "gpu": int(match.group(1))})

    def _channel(self, host: str, match: re.Match[str], _text: str) -> None:
        number, source, target, direction, transport, device, proxy, suffix = match.groups()
        channel: dict[str, Any] = {
            "host": host,
            "channel": int(number),
            "from_rank": int(source),
            "to_rank": int(target),
            "transport": transport,
        }
        if direction:
            channel["direction"] = direction
        if transport.startswith("NET/"):
            if device is not None:
                channel["net_device"] = int(device)
            channel["gpudirect"] = "/GDRDMA" in suffix
            if proxy is not None:
                channel["proxy_rank"] = int(proxy)
        self._add("channels", channel)

    def _communicator(self, host: str, match: re.Match[str], _text: str) -> None:
        rank, ranks, cuda, nvml, bus, identity, state = match.groups()
        entry: dict[str, Any] = {"host": host, "rank": int(rank), "ranks": int(ranks), "cuda_device": int(cuda)}
        if nvml:
            entry["nvml_device"] = int(nvml)
        if bus:
            entry["bus_id"] = bus
        if identity:
            entry["id"] = identity
        entry["state"] = state.lower()
        self._add("communicators", entry)

    _INFO = (
        (_CHANNEL, _channel),
        (_BOOTSTRAP, _bootstrap),
        (re.compile(r"^cudaDriverVersion (\d+)\s*$"), _driver),
        (_NETWORK, _network),
        (_NET_IB, _net_ib),
        (re.compile(r"^NET/IB ?: No device found"), _no_ib),
        (re.compile(r"^NET/\w*Socket ?: Using (.*)$"), _net_socket),
        (_PROVIDER, _provider),
        (_PLUGIN_PATH, _plugin_path),
        (_PLUGIN_NAME, _plugin_name),
        (_PLUGIN_MISSING, _plugin_missing),
        (re.compile(r"^(?:NET|TUNER|PROFILER|ENV)/Plugin"), _plugin_other),
        (_GDR_HCA, _gdr_hca),
        (_GDR_GPU, _gdr_gpu),
        (_DMABUF, _dmabuf),
        (_COMMUNICATOR, _communicator),
    )

    def _warn(self, host: str, gpu: int, source: str | None, text: str) -> None:
        entry: dict[str, Any] = {"host": host, "rank_gpu": gpu, "kind": "other", "text": text}
        if source:
            entry["source"] = source
        entry.update(_judge(text, source or ""))
        self._add("warns", entry)

    def result(self) -> dict[str, Any]:
        # Ranks speak in any order; warnings keep theirs, since the first one is the cause of the others.
        lists = {name: found if name == "warns" else sorted(found, key=repr) for name, found in self.lists.items()}
        return {**self.value, **lists}


def _judge(text: str, source: str) -> dict[str, Any]:
    """What kind of warning this is, and its values."""
    completion = _COMPLETION.search(text)
    if completion:
        return _completion(completion)
    event = _ASYNC.search(text)
    if event:
        return _async_event(event)
    connect = _CONNECT.search(text)
    if connect:
        return {
            "kind": "connect_failed",
            "peer": connect.group(1),
            "port": int(connect.group(2)),
            "reason": connect.group(3),
        }
    cuda = _CUDA.search(text)
    if cuda:
        failure: dict[str, Any] = {"kind": "nvls" if "nvls" in source else "cuda_failure", "reason": cuda.group(2)}
        if cuda.group(1):
            failure["code"] = int(cuda.group(1))
        return failure
    if "XML Import" in text or "NCCL_TOPO_FILE" in text or "NCCL_GRAPH_FILE" in text or "graph/xml" in source:
        return {"kind": "topology_import"}
    verbs = _VERBS.search(text)
    if verbs:
        call = verbs.group(1) or verbs.group(3)
        reason = verbs.group(2) or verbs.group(4)
        return {"kind": "verbs_failure", "call": call, **({"reason": reason} if reason else {})}
    return {"nvls": {"kind": "nvls"}}.get("nvls" if "nvls" in source else "", {})


def _async_event(match: re.Match[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "async_event", "event": match.group(3)}
    if match.group(1):
        found["device"], found["port"] = match.group(1), int(match.group(2))
    if match.group(4):
        found["code"] = int(match.group(4))
    return found


def _completion(match: re.Match[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "completion_error"}
    if match.group(1):
        found["peer"] = match.group(1)
    for key, pattern in _COMPLETION_NUMBERS:
        part = pattern.search(match.string)
        if part:
            found[key] = int(part.group(1))
    for key, pattern in (("local_gid", _LOCAL_GID), ("remote_gid", _REMOTE_GID), ("hca", _HCA)):
        part = pattern.search(match.string, match.end())
        if part:
            found[key] = part.group(1)
    return found
