# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which services get limits: those that are there, by the name that systemd knows them by."""

from __future__ import annotations

import boxes
import pytest
from boxes import plan_one

RUNS = {"active": True, "state": "active"}


@pytest.mark.parametrize(
    ("services", "unit"),
    [
        # Ubuntu's socket starts ssh.service, which is not enabled and so has no alias
        ({"ssh": {"active": True, "enabled": False}}, "ssh"),
        # Debian's is enabled, and has both names
        ({"ssh": RUNS, "sshd": RUNS}, "ssh"),
        ({"sshd": RUNS}, "sshd"),
    ],
)
def test_the_ssh_daemon_by_its_own_name(services, unit):
    box = boxes.hgx_h100()
    box.facts["services"] = services
    box.facts["limits"] = {"services": {"sshd": {"pid": 7, "memlock": {"soft": 8388608, "hard": 8388608}}}}
    assert plan_one(box, services_memlock=["sshd"])["limits"]["services"] == [unit]


def test_services_that_the_facts_do_not_ask_about_are_for_the_module_to_find():
    box = boxes.hgx_h100()
    box.facts["services"] = {"slurmd": RUNS}
    given = ["pbs_mom", "slurmd.service", "slurmd", "docker", "getty@tty1"]
    assert plan_one(box, services_memlock=given)["limits"]["services"] == ["pbs_mom", "slurmd", "getty@tty1"]
