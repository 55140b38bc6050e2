# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL: what its configuration file and its log say."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, RackView, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import parse, selector

CONF_SYNTAX = define(
    "nccl",
    "RF-NCCL-CONF-SYNTAX",
    title="A line of /etc/nccl.conf does not mean what it looks like",
    severity="fail",
    phase="configure",
    means="NCCL takes the file literally: no quotes, no blanks around the equals sign, no comment after a value, no "
    "export. A quoted device list matches no device, a quoted number reads as 0, both without an error.",
    looks_at="Every line of /etc/nccl.conf.",
    cause="The file was written by hand or by a template as if it were a shell file.",
    remedy="Run site.yml --tags nccl, which owns the whole file, or write one bare KEY=VALUE per line.",
    check="NCCL_DEBUG=INFO shows the value as meant (NCCL_IB_HCA set to ...).",
    source="NCCL src/misc/param.cc, setEnvFile; https://github.com/NVIDIA/nccl/issues/236",
    mended_by="nccl",
)

CONF_HCA = define(
    "nccl",
    "RF-NCCL-CONF-HCA",
    title="NCCL_IB_HCA in /etc/nccl.conf selects other devices than it says",
    severity="warn",
    phase="configure",
    means="Without a leading = the names are prefixes (mlx5_1 also selects mlx5_10), and the modifiers ^ and = count "
    "only at the start of the whole value.",
    looks_at="The value against the host's RDMA devices, in NCCL's own reading.",
    cause="The list was written for a machine with fewer devices, or devices were renamed.",
    remedy="Run site.yml --tags nccl: the list is derived per host and written in its exact form.",
    check="grep NCCL_IB_HCA /etc/nccl.conf begins with NCCL_IB_HCA==.",
    source="https://github.com/NVIDIA/nccl/issues/236",
    mended_by="nccl",
)

STALE_FILE = define(
    "nccl",
    "RF-NCCL-STALE-FILE",
    title="/etc/nccl.conf points NCCL at a topology or graph file of another machine",
    severity="fail",
    phase="diagnose",
    means="NCCL takes topology or channels from a file that does not describe this host: initialisation fails (XML "
    "Import Channel: dev not found) or pairs GPUs and NICs wrongly.",
    looks_at="NCCL_TOPO_FILE and NCCL_GRAPH_FILE in /etc/nccl.conf, whether the plan wants them, the number of GPUs, "
    "import errors in the NCCL log.",
    cause="The image was built for another machine size and nobody owns /etc/nccl.conf.",
    remedy="Run site.yml --tags nccl: it writes the file anew and keeps a backup of the old one. Set a topology file "
    "in gpu_fabric_nccl_env only for a virtual machine that needs the provider's.",
    check="NCCL_DEBUG=INFO no longer prints the file's name.",
    source="https://github.com/Azure/azhpc-images/issues/327",
    mended_by="nccl",
)

PLUGIN_DIFFERS = define(
    "nccl",
    "RF-NCCL-PLUGIN-DIFFERS",
    title="Nodes of one job load different NCCL net plugins or versions",
    severity="fail",
    phase="diagnose",
    means="The job hangs without an error as soon as nodes of both groups take part; each group alone works.",
    looks_at="NET/Plugin, plugin path and NCCL version lines of an NCCL log, per node.",
    cause="LD_LIBRARY_PATH or the image differs: libnccl-net.so (HPC-X) is found on some nodes only, or another "
    "libnccl comes first.",
    remedy="Make library paths equal on all nodes, or set NCCL_NET_PLUGIN=none for the job; compare with ldd as the "
    "job's environment resolves it, not with package lists.",
    check="The NCCL log prints the same plugin lines on every node.",
    source="https://github.com/NVIDIA/nccl/issues/1634",
)

BOOTSTRAP = define(
    "nccl",
    "RF-NCCL-BOOTSTRAP-INTERFACE",
    title="NCCL bootstraps over an interface that peers cannot reach",
    severity="fail",
    phase="diagnose",
    means="The out-of-band connection goes over a bridge or container interface whose address exists on every node; "
    "initialisation hangs or is refused.",
    looks_at="'Bootstrap : Using' and 'NET/Socket : Using' of an NCCL log.",
    cause="NCCL_SOCKET_IFNAME is not set, or is an exclusion list that leaves local interfaces in.",
    remedy="Run site.yml --tags nccl: NCCL_SOCKET_IFNAME is written per host in its exact form.",
    check="NCCL INFO Bootstrap : Using the management interface.",
    source="NCCL networking troubleshooting guide; https://github.com/NVIDIA/nccl/issues/913",
)

NO_DEVICE = define(
    "nccl",
    "RF-NCCL-NO-IB",
    title="NCCL found no RDMA device and uses TCP",
    severity="fail",
    phase="diagnose",
    means="A node runs the job over sockets at a fraction of the bandwidth, or init hangs because its peers use RDMA.",
    looks_at="'NET/IB : No device found' and 'Using network Socket' of an NCCL log, per node.",
    cause="No active RDMA device: modules missing after a kernel update, NCCL_IB_HCA names no device of this node, or "
    "the container does not see /dev/infiniband.",
    remedy="Check ls /sys/class/infiniband and NCCL_IB_HCA on the node; site.yml --tags ofed,nccl sets both right.",
    check="The log says Using network IB on every node.",
    source="https://github.com/Azure/azhpc-images/issues/119; https://github.com/NVIDIA/nccl/issues/234",
)

RETRY = define(
    "nccl",
    "RF-NCCL-RETRY-EXCEEDED",
    title="A queue pair gave up after retries",
    severity="fail",
    phase="diagnose",
    means="The peer did not acknowledge: the first error of the log is the one that counts, later flush errors follow "
    "from it.",
    looks_at="'Got completion ... status=12 ... vendor err 129' of an NCCL log, with its GIDs.",
    cause="The link to the peer was lost, GID or route do not fit, frames are dropped (MTU, PFC), or the remote "
    "process died.",
    remedy="Check that pair of rails: port state, ping over the rail, MTU, GID tables, PFC counters on both ends.",
    check="ib_write_bw between the two devices runs for a minute.",
    source="https://github.com/NVIDIA/nccl/issues/1814; https://github.com/NVIDIA/nccl/issues/1405",
)

NVLS = define(
    "nccl",
    "RF-NCCL-NVLS",
    title="NVLink SHARP cannot be set up",
    severity="fail",
    phase="diagnose",
    means="Jobs of three and more GPUs end in transport/nvls.cc; the switches' multicast state is stale.",
    looks_at="NCCL WARN lines of transport/nvls.cc.",
    cause="Fabric Manager was restarted while processes held GPUs.",
    remedy="Stop the jobs, restart nvidia-fabricmanager, reset the GPUs or reboot; NCCL_NVLS_ENABLE=0 only to confirm.",
    check="A job of all GPUs of the node starts.",
    source="https://github.com/NVIDIA/nccl/issues/976; https://github.com/NVIDIA/nccl/issues/1672",
)

REGISTRATION = define(
    "nccl",
    "RF-NCCL-MEMORY-REGISTRATION",
    title="NCCL cannot register memory with the adapter",
    severity="fail",
    phase="diagnose",
    means="ibv_reg_mr, ibv_create_cq or ibv_create_qp end with 'Cannot allocate memory': the job's processes may lock "
    "too little memory.",
    looks_at="NCCL WARN lines, per node.",
    cause="The limit of locked memory of the service that starts the job (slurmd, containerd), not of the login shell.",
    remedy="Run site.yml --tags rdma and restart the service that starts jobs (LimitMEMLOCK=infinity).",
    check="ulimit -l inside a job prints unlimited.",
    source="NCCL troubleshooting guide; https://github.com/ai4d-iasc/trixie/issues/81",
)

USER_CONF = define(
    "nccl",
    "RF-NCCL-USER-CONF",
    title="A user's NCCL file or profile overrides /etc/nccl.conf",
    severity="warn",
    phase="diagnose",
    means="NCCL reads ~/.nccl.conf first, and the environment wins over both: the values of /etc/nccl.conf do not "
    "hold for this user.",
    looks_at="/root/.nccl.conf and NCCL_* exports of /etc/profile.d and /etc/environment.",
    cause="A setting that was tried once and left.",
    remedy="Remove the line from the file named, or move it into gpu_fabric_nccl_env.",
    check="env | grep NCCL in a login shell prints nothing unexpected.",
    source="NCCL src/misc/param.cc, initEnv",
)

CONF = "/etc/nccl.conf"
_LINE = re.compile(r"^(?P<node>[\w.-]+?):(?P<pid>\d+):(?P<tid>\d+) \[(?P<rank>\d+)\] (?P<rest>.*)$")
_VIRTUAL = re.compile(r"^(docker|virbr|br-|veth|cni|cilium|lxc|flannel|kube|podman|tunl|lxdbr)")


def log_lines(rack: RackView, name: str = "nccl.log") -> t.Iterator[tuple[str, str, str]]:
    """(node, message, whole line) of an NCCL log."""
    for line in (rack.text(name) or "").splitlines():
        match = _LINE.search(line)
        if match:
            yield match["node"], match["rest"], line.strip()


def complaint(line: str) -> str | None:
    """Why NCCL reads another thing than a person does."""
    name, _, value = line.partition("=")
    if line.startswith("export "):
        return "'export ' becomes part of the name"
    if name != name.strip():
        return "the blank before = becomes part of the name"
    if re.search(r"\s#", value):
        return "the comment becomes part of the value"
    if re.search(r"[\"']", value):
        return "quotes become part of the value"
    if value != value.strip():
        return "blanks around the value become part of it"
    return None


@host_rule(CONF_SYNTAX)
def conf_syntax(host: HostView) -> t.Iterator[Finding]:
    for number, line in enumerate(host.files.get(CONF, "").split("\n"), 1):
        if line.startswith("#") or "=" not in line:
            continue
        why = complaint(line)
        if why:
            yield CONF_SYNTAX.on(
                host,
                f"{host.name}: line {number} of {CONF}: {why}: NCCL sets {line.partition('=')[0]!r} to "
                f"{line.partition('=')[2]!r}; bare KEY=VALUE wanted",
                device=line.partition("=")[0].strip(),
                evidence=[f"{CONF}:{number}: {line}"],
            )


@host_rule(CONF_HCA)
def conf_devices(host: HostView) -> t.Iterator[Finding]:
    value = parse(host.files.get(CONF, "")).get("NCCL_IB_HCA")
    names = sorted(host.section("rdma_devices"), key=natural)
    if not value or not names or complaint(f"NCCL_IB_HCA={value}"):
        return
    chosen = selector(value)
    wrong = list(chosen.problems)
    for item, _port in chosen.items if not chosen.exclude and not wrong else ():
        hits = [name for name in names if (name == item if chosen.exact else name.startswith(item))]
        if not hits:
            wrong.append(f"{item} is no device of this host")
        elif not chosen.exact and item in hits and len(hits) > 1:
            wrong.append(f"{item} also selects {', '.join(name for name in hits if name != item)}")
    if wrong:
        yield CONF_HCA.on(
            host,
            f"{host.name}: NCCL_IB_HCA={value} in {CONF}: {'; '.join(wrong)}; an exact list (==) of this host's "
            "devices wanted",
            device="NCCL_IB_HCA",
            evidence=[f"{CONF}: NCCL_IB_HCA={value}", f"devices: {', '.join(names)}"],
        )


@rack_rule(STALE_FILE)
def stale_files(rack: RackView) -> t.Iterator[Finding]:
    errors: dict[str, list[str]] = collections.defaultdict(list)
    for node, rest, line in log_lines(rack):
        if re.search(r"XML Import|Could not open XML|XML (parse|mismatch)|Topology file .* not found", rest):
            errors[node].append(line)
    for host in rack.hosts:
        env = parse(host.files.get(CONF, ""))
        planned = host.plan.get("nccl_env") or {}
        named = {
            name: env[name]
            for name in ("NCCL_GRAPH_FILE", "NCCL_TOPO_FILE")
            if env.get(name) and planned.get(name) != env[name]
        }
        if not named:
            continue
        lines = errors.get(host.name, [])
        shown = " and ".join(f"{name}={value}" for name, value in named.items())
        count = f"; the host has {len(host.gpus)} GPU{'s' if len(host.gpus) != 1 else ''}" if host.gpus else ""
        failing = "NCCL fails on it" if lines else "the plan does not"
        yield STALE_FILE.on(
            host,
            f"{host.name}: {CONF} sets {shown}, {failing}{count}; no such line wanted",
            device=", ".join(named),
            evidence=[*(f"{CONF}: {name}={value}" for name, value in named.items()), *lines[:3]],
            severity="fail" if lines else "warn",
        )


@rack_rule(PLUGIN_DIFFERS)
def plugin_differs(rack: RackView) -> t.Iterator[Finding]:
    plugin: dict[str, tuple[str, str]] = {}
    version: dict[str, tuple[str, str]] = {}
    for node, rest, line in log_lines(rack):
        if match := re.search(r"Plugin Path : (\S+)|NET/Plugin ?: (?:Loaded net plugin|Using) (\S+)", rest):
            plugin[node] = (next(group for group in match.groups() if group), line)
        elif re.search(r"NET/Plugin.*(Could not find|No plugin found|Using internal)", rest):
            plugin.setdefault(node, ("internal", line))
        if match := re.search(r"NCCL version (\d+\.\d+\.\d+\S*)", rest):
            version[node] = (match.group(1), line)
    for kind, seen in (("net plugin", plugin), ("NCCL version", version)):
        groups: dict[str, list[str]] = collections.defaultdict(list)
        for node, (value, _line) in seen.items():
            groups[value].append(node)
        if len(groups) < 2:
            continue
        parts = [f"{', '.join(sorted(nodes, key=natural))}: {value}" for value, nodes in sorted(groups.items())]
        odd = min(groups.values(), key=len)
        yield PLUGIN_DIFFERS.on(
            "",
            f"The {kind} differs between nodes of one job: {'; '.join(parts)}; the same on every node wanted",
            device="libnccl-net.so" if kind == "net plugin" else "libnccl.so.2",
            evidence=[line for _value, line in (seen[node] for nodes in groups.values() for node in nodes[:2])],
            remedy=f"Give {', '.join(sorted(odd, key=natural))} the same libraries as the others: libnccl-net.so and "
            "libnccl.so.2 must resolve to the same files in the job's environment (ldd, LD_LIBRARY_PATH), or set "
            "NCCL_NET_PLUGIN=none for the job.",
        )


@rack_rule(BOOTSTRAP, NO_DEVICE, RETRY, NVLS, REGISTRATION)
def log_errors(rack: RackView) -> t.Iterator[Finding]:
    first: dict[tuple[str, str], tuple[str, re.Match[str]]] = {}
    patterns = {
        "bootstrap": re.compile(
            r"(?:Bootstrap|NET/Socket) : Using (?:\[\d+\])?(?P<name>[\w.@-]+):(?P<address>[^<\s]+)"
        ),
        "no_device": re.compile(r"NET/IB : No device found|Using network Socket"),
        "retry": re.compile(r"Got completion .*status=(?:IBV_WC_RETRY_EXC_ERR\()?12.*"),
        "nvls": re.compile(r"transport/nvls\.cc:\d+ NCCL WARN .*"),
        "memory": re.compile(
            r"(?P<call>ibv_(?:reg_mr\w*|create_cq|create_qp)) failed.*(?:Cannot allocate memory|error 12)"
        ),
    }
    for node, rest, line in log_lines(rack):
        for kind, pattern in patterns.items():
            match = pattern.search(rest)
            if match and not (kind == "bootstrap" and not _VIRTUAL.match(match["name"])):
                first.setdefault((kind, node), (line, match))
    for (kind, node), (line, match) in first.items():
        if kind == "bootstrap":
            yield BOOTSTRAP.on(
                node,
                f"{node}: NCCL uses interface {match['name']} ({match['address']}) for its bootstrap; the interface "
                "that peers reach this host on wanted",
                device=match["name"],
                evidence=[line],
            )
        elif kind == "no_device":
            yield NO_DEVICE.on(
                node,
                f"{node}: NCCL finds no RDMA device and uses TCP; network IB wanted",
                device="NET/IB",
                evidence=[line],
            )
        elif kind == "retry":
            yield RETRY.on(
                node,
                f"{node}: a queue pair gave up (status 12, retry exceeded): {match[0]}; no such completion wanted",
                device="NET/IB",
                evidence=[line],
            )
        elif kind == "nvls":
            yield NVLS.on(node, f"{node}: {match[0]}; NVLS that starts wanted", device="NVLS", evidence=[line])
        else:
            yield REGISTRATION.on(
                node,
                f"{node}: {match['call']} fails for lack of lockable memory; memlock unlimited wanted for the service "
                "that starts the job",
                device="memlock",
                evidence=[line],
            )


@host_rule(USER_CONF)
def user_conf(host: HostView) -> t.Iterator[Finding]:
    for path, text in sorted(host.files.items()):
        if not (path.endswith("/.nccl.conf") or path.startswith("/etc/profile.d/") or path == "/etc/environment"):
            continue
        lines = [line.strip() for line in text.splitlines() if re.match(r"^\s*(export\s+)?NCCL_[A-Z_]+=", line)]
        if lines:
            yield USER_CONF.on(
                host,
                f"{host.name}: {path} sets {', '.join(line.removeprefix('export ').strip() for line in lines[:4])}, "
                f"which wins over {CONF}; none wanted",
                device=path,
                evidence=lines[:6],
            )
