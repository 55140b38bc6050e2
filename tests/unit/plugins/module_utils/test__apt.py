"""What dpkg left unfinished is known from dpkg-query's own answer."""

from __future__ import annotations

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _apt


@pytest.mark.parametrize("status", ["half-installed", "unpacked", "half-configured"])
def test_package_that_dpkg_began_is_unfinished(status: str) -> None:
    told = f"nvidia-modprobe\t580.95.05-1\t{status}\tinstall\nlibc6\t2.36-9\tinstalled\tinstall\n"
    assert _apt.parse_unfinished(told) == ["nvidia-modprobe"]


def test_removed_and_installed_packages_are_finished() -> None:
    told = "old\t1\tconfig-files\tdeinstall\nlibc6\t2.36-9\tinstalled\thold\n"
    assert _apt.parse_unfinished(told) == []
