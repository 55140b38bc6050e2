"""What a converged node is, seen past Ansible."""

from __future__ import annotations

import pytest
from rack import Rack

HCAS = 8


@pytest.fixture(scope="module", params=["gpu-01", "gpu-04"])
def host(request: pytest.FixtureRequest) -> str:
    return request.param


def test_nccl_conf_lists_exactly_the_compute_hcas(converged: Rack, host: str) -> None:
    lines = dict(
        line.split("=", 1) for line in converged.shell(host, "grep -v '^#' /etc/nccl.conf").splitlines() if line
    )
    assert lines["NCCL_IB_HCA"].startswith("=")
    named = {entry.split(":")[0] for entry in lines["NCCL_IB_HCA"][1:].split(",")}
    ports = converged.shell(host, "grep -l 400 /sys/class/infiniband/*/ports/1/rate").split()
    assert named == {path.split("/")[4] for path in ports}
    assert len(named) == HCAS
    assert lines["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert lines["NCCL_IB_TC"] == "106"


def test_rails_reach_each_other_at_full_size(converged: Rack, host: str) -> None:
    peer = "gpu-04" if host == "gpu-01" else "gpu-01"
    addresses = [
        line.split()[2].split("/")[0]
        for line in converged.shell(peer, "ip -br -4 address show").splitlines()
        if " 10.2" in line and not line.startswith(("lo", "eth0"))
    ]
    assert len(addresses) == HCAS
    for address in addresses:
        # 8972 bytes of data make a packet of 9000 that may not be split.
        converged.shell(host, f"ping -c 1 -W 2 -M do -s 8972 {address}")


def test_sysctls_are_in_force_and_in_one_file(converged: Rack, host: str) -> None:
    lines = converged.shell(host, "grep -v '^[#;]' /etc/sysctl.d/*gpu-fabric.conf").splitlines()
    wanted = {}
    for line in lines:
        if "=" in line:
            key, value = (part.strip() for part in line.split("=", 1))
            wanted[key.lstrip("-")] = value
    assert wanted
    for key, value in wanted.items():
        path = "/proc/sys/" + key.replace(".", "\0").replace("/", ".").replace("\0", "/")
        assert converged.shell(host, f"cat {path}").split() == value.split(), key


def test_limits_are_written_for_logins_and_services(converged: Rack, host: str) -> None:
    # Where nothing may raise a limit (no CAP_SYS_RESOURCE), logins get what there is.
    may_raise = int(converged.shell(host, "grep CapEff /proc/1/status").split()[1], 16) >> 24 & 1
    hard = converged.shell(host, "prlimit --pid 1 --memlock --raw --noheadings --output HARD").strip()
    reached = "unlimited" if may_raise or hard == "unlimited" else int(hard) // 1024
    written = converged.shell(host, "cat /etc/security/limits.d/90-gpu-fabric.conf")
    assert f"memlock  {reached}\n" in written
    shown = converged.shell(host, "systemctl show ssh.service -p LimitMEMLOCK -p LimitNOFILE")
    assert "LimitMEMLOCK=infinity" in shown
    assert "LimitNOFILE=1048576" in shown


def test_driver_set_has_one_version_and_is_held(converged: Rack, host: str) -> None:
    listed = converged.shell(
        host, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want}\\n' '*nvidia*'"
    ).splitlines()
    rows = [line.split() for line in listed if (len(line.split()) == 3 and "hold" in line) or "install" in line]
    versions = {row[1].rsplit("-", 1)[0] for row in rows if "fabricmanager" in row[0] or "driver" in row[0]}
    assert len(versions) == 1, rows
    assert converged.shell(host, "apt-mark showhold").split()
    loaded = converged.shell(host, "cat /proc/driver/nvidia/version")
    assert versions.pop() in loaded
    assert converged.shell(host, "systemctl is-active nvidia-fabricmanager").strip() == "active"


def test_firewall_lets_the_rack_in_and_nobody_else(converged: Rack, host: str) -> None:
    table = converged.shell(host, "nft list table inet gpu_fabric")
    assert "policy drop" in table
    assert "10.224.0.0" in table
    assert converged.shell(host, "systemctl is-enabled gpu-fabric-firewall.service").strip() == "enabled"


def test_rdma_tools_are_the_real_packages(converged: Rack, host: str) -> None:
    status = converged.shell(host, "dpkg-query -W -f '${Package} ${Status}\\n' rdma-core perftest infiniband-diags")
    assert status.count("ok installed") == 3


def test_settings_outlive_a_restart(converged: Rack) -> None:
    converged.lab(lab_power="off", lab_node="gpu-04")
    converged.lab(lab_power="on", lab_node="gpu-04")
    run = converged.site()
    assert run.rc == 0, run.describe()
    assert run.changes() == set(), "the restarted node was not as the run had left it"


def test_budget_of_remote_executions(converged: Rack) -> None:
    for arguments, limit in (((), 20), (("--tags", "rdma"), 8)):
        run, counts = converged.remote_executions(*arguments)
        assert run.rc == 0, run.describe()
        assert counts
        assert max(counts.values()) <= limit, (arguments, counts)
