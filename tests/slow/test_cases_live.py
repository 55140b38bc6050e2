"""Faults seen in the field, made by hand on a converged rack: preflight names them there as it does in a recording."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site"))

from rack import Rack, findings, places

NODE, OTHER = "gpu-02", "gpu-01"


@dataclass(frozen=True)
class Case:
    """What breaks one node, what mends it, and what the run must say."""

    breaks: str
    mends: str
    finding: str
    words: tuple[str, ...]
    severity: str
    arguments: tuple[str, ...] = ()
    restart: bool = False
    #: Not what a layer of the run sets right, nor what is only looked at when a fabric is slow.
    stops: bool = False


FIRST_RAIL = "netdev=$(basename /sys/class/infiniband/mlx5_0/device/net/*)"
ADDRESS_AGAIN = """
    ip address del $(cat /run/cidr) dev $netdev
    {link_local}
    gpu-fabric-lab sync
    ip address add $(cat /run/cidr) dev $netdev
    gpu-fabric-lab sync
"""
SSH_LIMIT = "/etc/systemd/system/ssh.service.d/zz-site.conf"
CASES = {
    "forced GID index points at a link-local address": Case(
        # The address of the rail is taken away and given again behind another link-local one.
        breaks=f"{FIRST_RAIL}; ip -br -4 address show dev $netdev | awk '{{print $3}}' > /run/cidr\n"
        + ADDRESS_AGAIN.format(link_local="ip address add fe80::1186:a6b1:3f0b:c441/64 dev $netdev"),
        mends=f"{FIRST_RAIL}\n"
        + ADDRESS_AGAIN.format(link_local="ip address del fe80::1186:a6b1:3f0b:c441/64 dev $netdev"),
        finding="RF-PLAN-NCCL-ENV",
        words=("mlx5_0", "index 3", "fe80", "index 5"),
        severity="fail",
        stops=True,
        arguments=("-e", '{"gpu_fabric_nccl_env": {"NCCL_IB_GID_INDEX": "3"}}'),
    ),
    "PCIe ACS redirects peers": Case(
        breaks="gpu-fabric-lab fault acs_on",
        mends="gpu-fabric-lab fault clear acs_on",
        finding="RF-PCIE-ACS",
        words=("ACS", "ReqRedir"),
        severity="fail",
    ),
    "traffic leaves in the lossy class": Case(
        breaks="cp /etc/nccl.conf /run/nccl.conf; sed -i /NCCL_IB_TC/d /etc/nccl.conf",
        mends="cp /run/nccl.conf /etc/nccl.conf",
        finding="RF-ROCE-TRAFFIC-CLASS",
        words=("NCCL_IB_TC", "priority 3", "DSCP 0"),
        severity="fail",
    ),
    "a later file takes a kernel parameter back": Case(
        breaks="echo 'net.core.rmem_max = 212992' > /etc/sysctl.d/zz-site.conf",
        mends="rm /etc/sysctl.d/zz-site.conf",
        finding="RF-SYSCTL-OVERRIDDEN",
        words=("zz-site.conf", "net.core.rmem_max", "212992"),
        severity="fail",
        stops=True,
    ),
    "a kernel argument never reached the kernel": Case(
        breaks="""
            mkdir -p /etc/default/grub.d
            echo 'GRUB_CMDLINE_LINUX_DEFAULT="quiet pcie_aspm=off"' > /etc/default/grub
            echo 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1"' > /etc/default/grub.d/50-cloudimg-settings.cfg
        """,
        mends="rm /etc/default/grub /etc/default/grub.d/50-cloudimg-settings.cfg",
        finding="RF-CMDLINE-NOT-ACTIVE",
        words=("50-cloudimg-settings.cfg", "pcie_aspm=off", "/proc/cmdline"),
        severity="fail",
        stops=True,
    ),
    "memory may not be pinned by a service": Case(
        breaks=f"""
            printf '[Service]\\nLimitMEMLOCK=65536\\n' > {SSH_LIMIT}
            systemctl daemon-reload; systemctl restart ssh
        """,
        mends=f"rm {SSH_LIMIT}; systemctl daemon-reload; systemctl restart ssh",
        finding="RF-LIMITS-MEMLOCK",
        words=("ssh", "65536", "memlock"),
        severity="fail",
    ),
    "the same card has another name": Case(
        breaks="gpu-fabric-lab set nics.0.rdma '\"mlx5_ib0\"'",
        mends="gpu-fabric-lab set nics.0.rdma '\"mlx5_0\"'",
        finding="RF-RDMA-NAMES-DIFFER",
        words=(NODE, "mlx5_ib0", "mlx5_0"),
        severity="warn",
        restart=True,
    ),
}


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    rack = Rack(nodes=2)
    rack.reset()
    rack.converge()
    yield rack
    rack.down()


@pytest.fixture(scope="module")
def healthy(rack: Rack) -> set[tuple[str, str, str]]:
    run = rack.playbook("playbooks/preflight.yml")
    assert run.rc == 0, run.describe()
    return places(findings(run))


def restart(rack: Rack) -> None:
    rack.lab(lab_power="off", lab_node=NODE)
    rack.lab(lab_power="on", lab_node=NODE)


@contextmanager
def broken(rack: Rack, case: Case) -> Iterator[None]:
    rack.shell(NODE, case.breaks)
    try:
        if case.restart:
            restart(rack)
        yield
    finally:
        rack.shell(NODE, case.mends)
        if case.restart:
            restart(rack)


@pytest.mark.parametrize("name", CASES)
def test_fault_made_by_hand_is_named(rack: Rack, healthy: set, name: str) -> None:
    case = CASES[name]
    with broken(rack, case):
        run = rack.playbook("playbooks/preflight.yml", *case.arguments)
    assert run.changes() == set()
    new = [finding for finding in findings(run) if not places([finding]) & healthy]
    found = [finding for finding in new if finding["id"] == case.finding]
    assert found, [(f["id"], f["host"], f["message"]) for f in new]
    text = "\n".join(" ".join([f["message"], f["remedy"], *f["evidence"]]) for f in found)
    for word in case.words:
        assert word in text, text
    assert case.severity in {finding["severity"] for finding in found}
    assert (run.rc != 0) == case.stops, run.describe()
    assert not [finding for finding in new if finding["id"] != case.finding and finding["severity"] == "fail"], new
    after = rack.playbook("playbooks/preflight.yml")
    assert places(findings(after)) == healthy


# Holds dpkg's own lock the way apt does, under the name of what usually does.
HOLDER = textwrap.dedent("""
    import ctypes, fcntl, sys, time
    ctypes.CDLL(None).prctl(15, b"unattended-upgr", 0, 0, 0)
    held = open("/var/lib/dpkg/lock-frontend", "w")
    fcntl.lockf(held, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
""")


@contextmanager
def lock_held(rack: Rack, seconds: int) -> Iterator[subprocess.Popen]:
    rack.shell(NODE, f"cat > /run/holder.py <<'EOF'\n{HOLDER}\nEOF")
    environment = rack.environment(**rack.engine_environment())
    command = [*rack.inside(NODE), "python3", "/run/holder.py", str(seconds)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        try:
            yield holder
        finally:
            rack.shell(NODE, "pkill -f '[h]older.py' || :")


def test_a_held_package_lock_is_waited_for(rack: Rack) -> None:
    rack.reset()
    with lock_held(rack, 60):
        run = rack.site("--tags", "ofed")
    assert run.rc == 0, run.describe()
    assert {host for host, _ in run.changes()} == set(rack.hosts)


def test_a_package_lock_held_too_long_is_told_with_its_holder(rack: Rack) -> None:
    rack.reset()
    with lock_held(rack, 3600) as holder:
        run = rack.site("--tags", "ofed", "-e", "ofed_lock_timeout_s=5")
        assert holder.poll() is None, "the holder of the lock was ended"
    assert run.rc != 0
    assert run.stats[NODE]["failures"] == 1, run.describe()
    for word in ("/var/lib/dpkg/lock-frontend", "held by process", "holder.py", "5 s"):
        assert word in run.messages(), run.describe()
    assert run.stats[OTHER]["failures"] == 0
