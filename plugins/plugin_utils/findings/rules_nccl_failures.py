# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NCCL and MPI say when a job ends."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Entry, Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RackView
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.nccl_log import messages

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
    looks_at="NCCL WARN lines, per node; UCX's error lines in the output of mpirun and srun.",
    cause="The limit of locked memory of the service that starts the job (slurmd, containerd), not of the login shell.",
    remedy="Run site.yml --tags rdma and restart the service that starts jobs (LimitMEMLOCK=infinity).",
    check="ulimit -l inside a job prints unlimited.",
    source="NCCL troubleshooting guide; https://github.com/ai4d-iasc/trixie/issues/81",
)

COMPLETION = define(
    "nccl",
    "RF-NCCL-COMPLETION-ERROR",
    title="A transfer between two adapters failed",
    severity="fail",
    phase="diagnose",
    means="The adapter reported a work request as failed, and the job ended. The first such line of a node counts; "
    "flushed requests (status 5) only follow from it.",
    looks_at="'Got completion ... status=N' of an NCCL log other than 12 (retries exceeded), with vendor error and "
    "peer.",
    cause="1 and 10: the two ends have different MTUs, or the peer's memory is not reachable (GPUDirect RDMA, ACS, "
    "IOMMU). 4: the local memory is not registered for it. 13: the peer posted no receive in time.",
    remedy="Compare the MTU of both interfaces (ip link) and active_mtu of both devices (ibv_devinfo), then GPUDirect "
    "RDMA on both nodes (lsmod | grep peermem, dmesg), then update NCCL to the same version on both.",
    check="ib_write_bw between the two devices runs with GPU memory (--use_cuda).",
    source="https://github.com/NVIDIA/nccl/issues/1524; https://github.com/NVIDIA/nccl/pull/2135",
)

QUEUE_PAIR = define(
    "nccl",
    "RF-NCCL-QUEUE-PAIR",
    title="A queue pair cannot be connected",
    severity="fail",
    phase="diagnose",
    means="NCCL could not bring a queue pair to the state in which it sends: the peer's address cannot be resolved or "
    "reached from this device.",
    looks_at="'ibv_modify_qp failed' of an NCCL log, with device, GIDs and the kernel's error.",
    cause="A forced GID index that is link-local or RoCE v1 on one end, rails of different subnets without a route, "
    "ARP answered by another rail, or the port went down.",
    remedy="Compare the GIDs named in the line with show_gids on both hosts, remove NCCL_IB_GID_INDEX (NCCL 2.21 and "
    "newer choose), and ping from rail to rail (ping -I LOCAL_ADDRESS PEER_ADDRESS).",
    check="ib_write_bw -d DEVICE -x INDEX connects between the two hosts.",
    source="https://github.com/NVIDIA/nccl/issues/769; https://github.com/NVIDIA/nccl/issues/1405",
)

SHARED_MEMORY = define(
    "nccl",
    "RF-NCCL-SHARED-MEMORY",
    title="/dev/shm is too small for NCCL",
    severity="fail",
    phase="diagnose",
    means="Processes of one node share buffers under /dev/shm; where it is full the job ends in its first collective.",
    looks_at="'failed to extend /dev/shm' and 'No space left on device' of an NCCL log, per node.",
    cause="A container was started with Docker's default of 64 MiB, or files of ended jobs were left there.",
    remedy="Start the container with --shm-size=16g or --ipc=host (Kubernetes: an emptyDir with medium: Memory at "
    "/dev/shm), and remove stale /dev/shm/nccl-* files.",
    check="df -h /dev/shm inside the job shows several GiB free.",
    source="NCCL troubleshooting guide: shared memory",
)

OPEN_FILES = define(
    "nccl",
    "RF-NCCL-OPEN-FILES",
    title="NCCL runs out of file descriptors",
    severity="fail",
    phase="diagnose",
    means="Sockets, queue pairs and shared memory need descriptors for every peer; at the limit no more connections "
    "are made and the job ends.",
    looks_at="'Too many open files' of an NCCL log or an MPI log, per node.",
    cause="The limit of open files (nofile) of the service that starts the job, 1024 by default.",
    remedy="Run site.yml --tags rdma (nofile 1048576 for logins and services, LimitNOFILE), then restart the service "
    "that starts jobs.",
    check="ulimit -n inside a job prints 1048576.",
    source="NCCL networking guide; limits of Azure/azhpc-images and oracle-quickstart/oci-hpc",
)

CUDA_FAILURE = define(
    "nccl",
    "RF-NCCL-CUDA-FAILURE",
    title="CUDA does not work on a node of the job",
    severity="fail",
    phase="diagnose",
    means="The job ended in CUDA before anything went over the network: driver and toolkit do not fit, or the GPUs are "
    "not ready.",
    looks_at="CUDA errors of NCCL and nccl-tests that the program itself cannot cause, per node.",
    cause="The driver is older than the CUDA runtime asks for; Fabric Manager does not run (802); cuda-compat on "
    "hardware that does not support it (804); no GPU is visible to the process.",
    remedy="Insufficient driver: update the driver or take a container of an older CUDA. 802: start "
    "nvidia-fabricmanager in the driver's version. 804: remove cuda-compat. No device: check nvidia-smi and the "
    "container's devices.",
    check="nvidia-smi answers in the job and shows a CUDA version of at least the runtime's.",
    source="https://github.com/NVIDIA/nccl-tests/issues/98; https://github.com/NVIDIA/nccl-tests/issues/264",
)

SAME_GPU = define(
    "nccl",
    "RF-NCCL-SAME-GPU",
    title="Two ranks use the same GPU",
    severity="fail",
    phase="diagnose",
    means="NCCL refuses a communicator in which a GPU stands twice: the job ends at once.",
    looks_at="'Duplicate GPU detected' of an NCCL log.",
    cause="More processes than GPUs on a node, or CUDA_VISIBLE_DEVICES is the same for all of them.",
    remedy="Start one process for each GPU (-npernode, --ntasks-per-node) and let each take the GPU of its local rank.",
    check="nccl-tests lists each GPU once.",
    source="NCCL src/init.cc",
)

# Releases before 2.19 say `with error 12, opcode 0`.
_STATUS = re.compile(r"Got completion .*?(?:status=(?:(?P<word>IBV_WC_\w+)\()?|with error )(?P<code>\d+)")
_STATUS_NAMES = {
    1: "local length error",
    2: "local QP operation error",
    4: "local protection error",
    6: "memory window bind error",
    8: "local access error",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    13: "receiver not ready",
}
_FLUSHED, _RETRIES = 5, 12


@rack_rule(RETRY, COMPLETION)
def failed_transfers(rack: RackView) -> t.Iterator[Finding]:
    seen: set[tuple[str, bool]] = set()
    for node, text, line in messages(rack):
        match = _STATUS.search(text)
        code = int(match["code"]) if match else _FLUSHED
        if not match or code in (0, _FLUSHED) or (node, code == _RETRIES) in seen:
            continue
        seen.add((node, code == _RETRIES))
        shown = text[match.start() :]
        if code == _RETRIES:
            yield RETRY.on(
                node,
                f"{node}: a queue pair gave up (status 12, retry exceeded): {shown}; no such completion wanted",
                device="NET/IB",
                evidence=[line],
            )
            continue
        yield COMPLETION.on(
            node,
            f"{node}: a transfer failed with status {code} ({_STATUS_NAMES.get(code, 'error')}): {shown}; no such "
            "completion wanted",
            device="NET/IB",
            evidence=[line],
        )


_QP = re.compile(r"ibv_modify_qp failed with (?:error )?(?P<why>.*)")
_SHM = re.compile(
    r"(?:failed to extend|while (?:creating|attaching to)).*?(?P<path>/dev/shm\S*)|/dev/shm.*No space left"
)
_CUDA = re.compile(
    r"(?P<what>CUDA driver version is insufficient for CUDA runtime version|system not yet initialized"
    r"|forward compatibility was attempted on non supported HW|no CUDA-capable device is detected"
    r"|API call is not supported in the installed CUDA driver|system has unsupported display driver)"
)


class _Kind(t.NamedTuple):
    """Messages that become a finding as they stand: which, on what, and what is wanted instead."""

    entry: Entry
    pattern: re.Pattern[str]
    device: str
    says: str


_KINDS = (
    _Kind(NVLS, re.compile(r"transport/nvls\.cc:\d+ NCCL WARN .*"), "NVLS", "{0}; NVLS that starts wanted"),
    _Kind(
        QUEUE_PAIR,
        _QP,
        "NET/IB",
        "ibv_modify_qp failed with {why}; a peer that can be reached from this device wanted",
    ),
    _Kind(SHARED_MEMORY, _SHM, "/dev/shm", "/dev/shm is too small: {0}; several GiB wanted"),
    _Kind(
        OPEN_FILES,
        re.compile(r"Too many open files"),
        "nofile",
        "the limit of open files (nofile) is reached: {0}; 1048576 wanted",
    ),
    _Kind(CUDA_FAILURE, _CUDA, "CUDA", "CUDA fails: {what}; CUDA that starts wanted"),
    _Kind(
        SAME_GPU,
        re.compile(r"Duplicate GPU detected ?: .*"),
        "GPU",
        "{0}; one process for each GPU wanted",
    ),
)
_CALL = r"(?P<call>ibv_(?:reg_(?:dmabuf_)?mr\w*|create_cq|create_qp|create_srq|alloc_pd))"
_NO_MEMORY = re.compile(_CALL + r"\S* failed.*(?:Cannot allocate memory|error 12\b|errno 12\b)")


@rack_rule(NVLS, QUEUE_PAIR, SHARED_MEMORY, OPEN_FILES, CUDA_FAILURE, SAME_GPU, REGISTRATION)
def failures(rack: RackView) -> t.Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for node, text, line in messages(rack):
        for kind in _KINDS:
            match = kind.pattern.search(text)
            if match and (kind.entry.id, node) not in seen:
                seen.add((kind.entry.id, node))
                said = kind.says.format(match[0].strip(), **match.groupdict())
                yield kind.entry.on(node, f"{node}: {said}", device=kind.device, evidence=[line])
        match = _NO_MEMORY.search(text)
        if match and (REGISTRATION.id, node) not in seen:
            seen.add((REGISTRATION.id, node))
            yield _registration(node, match, line)
    yield from _without_nccl(rack, seen)


def _registration(node: str, match: re.Match[str], line: str) -> Finding:
    return REGISTRATION.on(
        node,
        f"{node + ': ' if node else ''}{match['call']} fails for lack of lockable memory (memlock); memlock unlimited "
        "wanted for the service that starts the job",
        device="memlock",
        evidence=[line],
    )


# [1653500000.123456] [node:1234:0] ib_device.c:1000 UCX  ERROR …;  [node][[1,0],1][btl_openib…]
_OTHER_NODE = re.compile(r"\[(?P<node>[A-Za-z][\w.-]*)(?::\d+)*\]|^(?P<host>[A-Za-z][\w.-]*): ")
_TEST_CUDA = re.compile(r"^(?P<node>[\w.-]+)(?::\d+)?:? .*?(?:Test )?CUDA (?:failure|error).*?'" + _CUDA.pattern)


def _without_nccl(rack: RackView, seen: set[tuple[str, str]]) -> t.Iterator[Finding]:
    """The same faults in the words of UCX, Open MPI and nccl-tests."""
    for name in ("mpirun.log", "srun.log", "nccl_tests.txt"):
        for line in (rack.text(name) or "").splitlines():
            memory, cuda = _NO_MEMORY.search(line), _TEST_CUDA.search(line)
            found = _OTHER_NODE.search(line)
            node = (found["node"] or found["host"]) if found else ""
            if memory and "NCCL WARN" not in line and (REGISTRATION.id, node) not in seen:
                seen.add((REGISTRATION.id, node))
                yield _registration(node, memory, line.strip())
            if cuda and (CUDA_FAILURE.id, cuda["node"]) not in seen:
                seen.add((CUDA_FAILURE.id, cuda["node"]))
                yield CUDA_FAILURE.on(
                    cuda["node"],
                    f"{cuda['node']}: CUDA fails: {cuda['what']}; CUDA that starts wanted",
                    device="CUDA",
                    evidence=[line.strip()],
                )
