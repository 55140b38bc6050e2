"""The inbox RDMA stack is really installed, by apt."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("name", ["rdma-core", "perftest", "infiniband-diags", "ibverbs-utils"])
def test_package_is_installed(host, name):
    assert host.package(name).is_installed


def test_tools_see_every_hca(host):
    listed = host.check_output("ibstat -l").split()
    assert len(listed) >= 8
    assert set(listed) == set(host.check_output("ls /sys/class/infiniband").split())
