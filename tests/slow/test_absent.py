"""What the collection brought goes again: a bare node, converged and given back, is the bare node."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site"))

from rack import Rack, Run

ALLOWED = ("-e", "gpu_fabric_allow_disruption=linkflap")
ABSENT = (*ALLOWED, "-e", "gpu_fabric_state=absent")
# A node with a past of its own: its files and a package of its own choice are none of ours to take away.
OWN = "gpu-02"
OWN_NCCL_CONF = "# of the site\nNCCL_DEBUG=INFO\n"

# Everything below these directories, folders too; and what is in force.
STATE = r"""
find /etc /usr/local /var/lib /root -xdev ! -name '*.pyc' \
    \( -type f -exec cksum {} + -o -type l -printf '%p -> %l\n' -o -type d -printf '%p/ %m\n' \) 2>/dev/null | sort -k3
dpkg-query -W -f 'package ${Package} ${Version} ${Status}\n'
apt-mark showhold | sed 's/^/held /'
ip -o address show | sed 's/ valid_lft.*//'
ip -o link show | sed 's/ qlen.*//; s/state [A-Z]* //'
ip rule show; ip route show table all
nft list ruleset 2>/dev/null
systemctl list-unit-files --state=enabled --no-legend | awk '{print "enabled", $1}'
sysctl -a 2>/dev/null | grep -E '^(net|vm|kernel)[.]'
lsmod | awk '{print "module", $1}' | sort
"""
# What is the packages' own or the machine's, and not taken back by any package manager: the lab's hardware, apt's and
# dpkg's books, accounts that a package's script made, a cache of the linker, the controller's temporary directory.
NOT_OURS = re.compile(
    r"/var/lib/gpu-fabric-lab/|/root/\.ansible|/etc/resolv\.conf|/etc/mtab|/etc/ld\.so\.cache"
    r"|/var/lib/(?:dpkg|apt/extended_states|apt/lists/.*_debian_|apt/lists/auxfiles|systemd/|pam/|ucf/|dbus/)"
    r"|/etc/(?:passwd|group|shadow|gshadow|subuid|subgid)-?$"
    r"|^net\.netfilter|^net\.ipv[46]\.neigh|kernel\.(?:random|ns_last_pid|pty)|^net\.ipv4\.tcp_mem|^vm\.stat"
)


def state(rack: Rack, host: str) -> list[str]:
    return sorted({line for line in rack.shell(host, STATE).splitlines() if line.strip() and not NOT_OURS.search(line)})


def differences(before: list[str], after: list[str]) -> list[str]:
    return [f"- {line}" for line in sorted(set(before) - set(after))] + [
        f"+ {line}" for line in sorted(set(after) - set(before))
    ]


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    rack = Rack(nodes=2)
    rack.reset()
    yield rack
    rack.down()


@pytest.fixture(scope="module")
def story(rack: Rack) -> dict[str, Any]:
    """Converge, look, give back, look, give back once more: every test below reads one chapter of it."""
    rack.shell(OWN, f"printf '{OWN_NCCL_CONF}' > /etc/nccl.conf; chmod 0640 /etc/nccl.conf")
    before = {host: state(rack, host) for host in rack.hosts}
    present = rack.site(*ALLOWED)
    assert present.rc == 0, present.describe()
    # Its path moves to and fro; what is left at the first must be what was there.
    moved = rack.site(*ALLOWED, "--tags", "nccl", "-e", "nccl_conf_path=/etc/site/nccl.conf")
    assert moved.rc == 0, moved.describe()
    at_first = {host: rack.shell(host, "cat /etc/nccl.conf 2>/dev/null || true") for host in rack.hosts}
    rack.lab(lab_fault="gpu_missing", lab_fault_node="gpu-01")
    absent = rack.site(*ABSENT)
    after = {host: state(rack, host) for host in rack.hosts}
    again = rack.site(*ABSENT)
    rack.lab(lab_fault="none")
    back = rack.site(*ALLOWED)
    return {
        "before": before, "at_first": at_first, "absent": absent, "after": after, "again": again, "back": back,
    }  # fmt: skip


def test_a_path_that_moves_leaves_what_was_there(story: dict[str, Any]) -> None:
    assert story["at_first"] == {"gpu-01": "", OWN: OWN_NCCL_CONF}


def test_a_broken_gpu_does_not_stop_the_removal(story: dict[str, Any]) -> None:
    absent: Run = story["absent"]
    assert absent.rc == 0, absent.describe()
    assert "RF-GPU-FELL-OFF-BUS" in absent.messages() + json.dumps(absent.data)


@pytest.mark.parametrize("host", ["gpu-01", OWN])
def test_the_node_is_what_it_was(story: dict[str, Any], host: str) -> None:
    assert differences(story["before"][host], story["after"][host]) == []


def test_a_second_removal_changes_nothing(story: dict[str, Any]) -> None:
    assert story["again"].rc == 0, story["again"].describe()
    assert story["again"].changes() == set()


def test_back_again_no_link_is_said_to_flap(story: dict[str, Any]) -> None:
    """Three times now, PFC has cost each rail its link: that was the collection, and no bad cable."""
    assert story["back"].rc == 0, story["back"].describe()
    assert "RF-PORT-FLAPS" not in story["back"].messages() + json.dumps(story["back"].data)
