"""/etc/nccl.conf says what NCCL's own parser can read, and the library is pinned."""

from __future__ import annotations

import re


def test_every_line_is_one_that_nccl_reads_literally(host):
    lines = [line for line in host.file("/etc/nccl.conf").content_string.split("\n") if line and line[0] != "#"]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*=[^\s\"'].*[^\s\"']|[A-Z][A-Z0-9_]*=[^\s\"']", line), line


def test_hca_list_is_exact_and_complete(host):
    text = host.file("/etc/nccl.conf").content_string
    value = re.search(r"^NCCL_IB_HCA=(.*)$", text, re.MULTILINE).group(1)
    assert value.startswith("=")
    assert len(value[1:].split(",")) == 8


def test_library_is_installed_and_held(host):
    assert host.package("libnccl2").is_installed
    assert "libnccl2" in host.check_output("apt-mark showhold").split()
