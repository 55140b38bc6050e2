"""Preflight reads and decides; it leaves a bare node as bare as it was."""

from __future__ import annotations


def test_nothing_is_written(host):
    for path in ("/var/lib/gpu_fabric", "/etc/gpu_fabric", "/etc/nccl.conf", "/etc/sysctl.d/90-gpu-fabric.conf"):
        assert not host.file(path).exists, path


def test_nothing_is_installed(host):
    assert not host.package("perftest").is_installed
    assert host.run("dpkg-query -W 'nvidia*' 2>/dev/null").stdout.strip() == ""
