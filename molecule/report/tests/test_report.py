"""A report is written on the controller; the node does not know of it."""

from __future__ import annotations


def test_node_is_untouched(host):
    assert not host.file("/root/reports").exists
    assert not host.file("/var/lib/gpu_fabric").exists
