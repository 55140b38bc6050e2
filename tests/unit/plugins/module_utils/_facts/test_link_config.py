# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces that configuration files name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import live
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import link_config

NETPLAN = """network:
  version: 2
  ethernets:
    ens1f0np0: {mtu: 9000}
    "eno1":
      dhcp4: true
    any-label:
      match:
        macaddress: aa:bb:cc:dd:ee:ff
      set-name: rail0
  wifis:
    wlan0:
      access-points: {"x": {password: "secret"}}
"""


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("/etc/netplan/50.yaml", NETPLAN, ["ens1f0np0", "eno1"]),
        ("/etc/systemd/network/10.network", "[Match]\nName=rail0 rail1\n\n[Network]\nDHCP=no\n", ["rail0", "rail1"]),
        ("/etc/systemd/network/11.network", "[Match]\nName=en*\n", []),
        ("/etc/systemd/network/12.network", "[Match]\nMACAddress=aa:bb:cc:dd:ee:ff\n[Link]\nName=x\n", []),
        ("/etc/network/interfaces", "auto lo\niface lo inet loopback\niface ens5 inet static\n", ["ens5"]),
        ("/etc/sysconfig/network-scripts/ifcfg-p1", 'DEVICE="p1"\nONBOOT=yes\n', ["p1"]),
        ("/etc/NetworkManager/system-connections/a.nmconnection", "[connection]\ninterface-name=ib0\n", ["ib0"]),
    ],
)
def test_names(path: str, text: str, names: list[str]) -> None:
    assert link_config.named(path, text) == names


def test_files_of_a_host(tmp_path: Path) -> None:
    source = live(tmp_path, {"/etc/netplan/50.yaml": NETPLAN, "/etc/netplan/README": "iface x inet\n"})
    assert link_config.collect(source) == {"/etc/netplan/50.yaml": ["ens1f0np0", "eno1"]}


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    for path in ("/etc/netplan/a.yaml", "/etc/systemd/network/a.network", "/etc/network/interfaces"):
        assert all(isinstance(name, str) for name in link_config.named(path, text))
