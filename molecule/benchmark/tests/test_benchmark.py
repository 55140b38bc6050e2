"""Measuring leaves nothing behind."""

from __future__ import annotations


def test_no_server_is_left(host):
    listed = host.check_output("systemctl list-units --no-legend --all 'gpu-fabric-bench-*'")
    assert "running" not in listed
    assert host.run("pgrep -x iperf3").rc != 0
