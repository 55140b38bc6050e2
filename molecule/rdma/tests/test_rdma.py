"""The RDMA layer holds now, in the kernel, and in the files that bring it back at boot."""

from __future__ import annotations

import json

import pytest


def test_rails_have_their_mtu_and_one_address(host, rails):
    links = {link["ifname"]: link for link in json.loads(host.check_output("ip -json address show"))}
    addresses = []
    for name in rails:
        assert links[name]["mtu"] == 9000, name
        assert "UP" in links[name]["flags"], name
        found = [entry["local"] for entry in links[name]["addr_info"] if entry["family"] == "inet"]
        assert len(found) == 1, name
        addresses += found
    assert len(set(addresses)) == len(rails) == 8


def test_other_interfaces_are_left_alone(host, rails):
    links = {link["ifname"]: link for link in json.loads(host.check_output("ip -json address show"))}
    for name, link in links.items():
        if name not in (*rails, "lo"):
            assert link["mtu"] == 1500, name


def test_rails_come_back_at_boot(host, rails):
    for name in rails:
        found = host.run(f"grep -rls {name} /etc/network/interfaces.d /etc/systemd/network /etc/netplan").stdout.split()
        assert len(found) == 1, name


def test_one_dscp_makes_the_whole_class(host, rails):
    for name in rails:
        shown = host.check_output(f"mlnx_qos -i {name}")
        assert "Priority trust state: dscp" in shown
        assert "enabled     0   0   0   1   0   0   0   0" in shown
        row = next(line for line in shown.splitlines() if "prio:3" in line)
        assert "26" in row


def test_boot_program_finds_nothing_to_do(host, rails):
    done = host.run("gpu-fabric-nic check")
    assert done.rc == 0, done.stdout + done.stderr
    for name in rails:
        assert host.service(f"gpu-fabric-nic@{name}").is_enabled


def test_kernel_parameters_are_in_force(host):
    lines = host.file("/etc/sysctl.d/90-gpu-fabric.conf").content_string.splitlines()
    wanted = [line.lstrip("-").split("=", 1) for line in lines if "=" in line and line[0] not in "#;"]
    assert wanted
    for key, value in wanted:
        # The kernel separates several numbers by tabs.
        assert host.check_output(f"sysctl -n {key.strip()}").split() == value.split(), key


@pytest.mark.parametrize("who", ["system", "user"])
def test_daemons_may_pin_memory(host, who):
    assert "DefaultLimitMEMLOCK=infinity" in host.file(f"/etc/systemd/{who}.conf.d/90-gpu-fabric.conf").content_string


def ceiling(host, resource):
    """What pam_limits can give to a login here, in the words of limits.conf.

    Without CAP_SYS_RESOURCE, as in some containers, no process can raise its hard limit, and a login that asks for more
    is refused, root's too.
    """
    if host.run(f"prlimit --{resource}=unlimited:unlimited true").rc == 0:
        return "unlimited"
    bytes_ = host.check_output(f"prlimit --noheadings --raw --output HARD --{resource} --pid 1")
    return "unlimited" if bytes_ == "unlimited" else str(int(bytes_) // 1024)


def test_logins_may_pin_memory_root_included(host):
    rows = [line.split() for line in host.file("/etc/security/limits.d/90-gpu-fabric.conf").content_string.splitlines()]
    for who in ("root", "*"):
        for bound in ("soft", "hard"):
            assert [who, bound, "memlock", ceiling(host, "memlock")] in rows


def test_a_login_has_what_the_file_says(host):
    assert host.check_output("ulimit -S -l") == host.check_output("ulimit -H -l") == ceiling(host, "memlock")
