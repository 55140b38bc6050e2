"""Limits: the files say what is wanted in each one's own unit; what cannot be raised is known beforehand."""

from __future__ import annotations

import os
import pathlib
import resource

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _limits
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure

INFINITY = resource.RLIM_INFINITY
WANTED = _limits.wanted_limits({"memlock": "unlimited", "nofile": 1048576})


def test_files_cover_logins_root_both_managers_and_each_service() -> None:
    files = _limits.files(WANTED, WANTED, ["ssh.service", "slurmd.service"])
    login = [line.split() for line in files["/etc/security/limits.d/90-gpu-fabric.conf"].splitlines()[1:]]
    assert ["root", "hard", "memlock", "unlimited"] in login
    assert ["*", "soft", "nofile", "1048576"] in login
    assert "[Manager]\nDefaultLimitMEMLOCK=infinity\n" in files["/etc/systemd/system.conf.d/90-gpu-fabric.conf"]
    assert "DefaultLimitNOFILE=1048576" in files["/etc/systemd/user.conf.d/90-gpu-fabric.conf"]
    assert "[Service]\nLimitMEMLOCK=infinity\n" in files["/etc/systemd/system/slurmd.service.d/90-gpu-fabric.conf"]
    assert len(files) == 5


def test_pam_limits_counts_sizes_in_kib_and_systemd_in_bytes() -> None:
    wanted = _limits.wanted_limits({"memlock": 64 * 1024 * 1024})
    files = _limits.files(wanted, wanted, ["slurmd.service"])
    assert "memlock  65536\n" in files[_limits.LOGIN_FILE]
    assert "LimitMEMLOCK=67108864\n" in files["/etc/systemd/system/slurmd.service.d/90-gpu-fabric.conf"]


@pytest.mark.parametrize("limits", [{"memlok": 1}, {"nofile": 0}, {"nofile": "many"}, {"memlock": None}])
def test_nonsense_is_refused_by_name(limits: dict) -> None:
    with pytest.raises(Failure, match=next(iter(limits))):
        _limits.wanted_limits(limits)


def test_proc_limits_of_this_process_read_as_the_kernel_reports_them() -> None:
    found = _limits.limits_of(os.getpid())
    assert found is not None
    assert {kind: tuple(found[kind]) for kind in found} == {
        kind: resource.getrlimit(number) for kind, (_, _, number) in _limits.KINDS.items()
    }


@pytest.mark.parametrize(
    ("wanted", "present", "may_raise", "reached"),
    [
        (INFINITY, (8388608, 8388608), True, (INFINITY, INFINITY)),
        (INFINITY, (65536, 8388608), False, (8388608, 8388608)),
        (1024, (4096, 4096), False, (1024, 1024)),
        (1048576, (1024, INFINITY), False, (1048576, 1048576)),
        (1048576, (1024, 4096), False, (4096, 4096)),
    ],
)
def test_what_can_be_reached(wanted: int, present: tuple, may_raise: bool, reached: tuple) -> None:
    limit = _limits.reachable(wanted, _limits.Limit(*present), may_raise)
    assert tuple(limit) == reached
    # A second run finds nothing left to do.
    assert _limits.reachable(wanted, limit, may_raise) == limit


def test_logins_get_what_those_who_start_them_have() -> None:
    many, few = _limits.Limit(1024, 1048576), _limits.Limit(1024, 524288)
    pid1, sshd = ({"memlock": _limits.Limit(8192, 8192), "nofile": nofile} for nofile in (many, few))
    assert _limits.login_limits(WANTED, [pid1, sshd]) == {"memlock": 8192, "nofile": 524288}
    assert _limits.login_limits(WANTED, []) == WANTED


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("95-site", "* - memlock 64\n", ["soft memlock 65536", "hard memlock 65536"]),
        ("95-site", "root hard nofile 4096 # site\n", ["hard nofile 4096"]),
        ("95-site", "* hard memlock unlimited\n* - nofile 1048576\n", []),
        ("95-site", "@hpc hard memlock 64\n* hard core 0\n", []),
        ("20-site", "* hard memlock 64\n", []),
    ],
)
def test_what_later_files_give_to_logins(tmp_path: pathlib.Path, name: str, text: str, found: list[str]) -> None:
    path = tmp_path / "etc/security/limits.d" / f"{name}.conf"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    said = _limits.login_overrides(WANTED, str(tmp_path))
    assert [sentence.partition(" gets ")[2].partition(" from ")[0] for sentence in said] == found
