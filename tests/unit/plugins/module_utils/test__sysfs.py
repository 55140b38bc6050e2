# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import link, recorded

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _sysfs


@pytest.mark.parametrize(
    ("path", "bdf", "root", "upstream"),
    [
        (
            "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0",
            "0000:18:00.0",
            "pci0000:15",
            ("0000:15:01.0", "0000:16:00.0"),
        ),
        # A sub-function: below its card, not a function of its own.
        (
            "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0/mlx5_core.sf.2/infiniband/mlx5_3",
            "0000:41:00.0",
            "pci0000:40",
            ("0000:40:01.1",),
        ),
        # Under VMBus the host bridge hangs on a channel.
        (
            "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/00000101-0000-4a1b-9c2d-3e4f5a6b7c8d/pci0101:00/"
            "0101:00:00.0/net/ib0",
            "0101:00:00.0",
            "pci0101:00",
            (),
        ),
        # Behind a volume management device the domain has five digits.
        (
            "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:01.0/10000:01:00.0",
            "10000:01:00.0",
            "pci0000:00",
            ("0000:00:0e.0", "10000:00:01.0"),
        ),
    ],
)
def test_place(path: str, bdf: str, root: str, upstream: tuple[str, ...]) -> None:
    at = _sysfs.place(path)
    assert at is not None
    assert (at.bdf, at.root, at.upstream) == (bdf, root, upstream)
    assert path.startswith(at.directory)
    assert at.directory.endswith(bdf)


@pytest.mark.parametrize("path", [None, "", "/sys/devices/virtual/net/lo", "/sys/devices/platform/x/net/eth0"])
def test_no_place(path: str | None) -> None:
    assert _sysfs.place(path) is None


def test_attributes(tmp_path: Path) -> None:
    source = recorded(
        tmp_path,
        {
            "root/a/text": " value \n",
            "root/a/empty": "\n",
            "root/a/decimal": "42\n",
            "root/a/hex": "0x1F\n",
            "root/a/word": "fast\n",
            "root/a/numa": "-1\n",
            "root/a/numa1": "1\n",
        },
    )
    assert _sysfs.text(source, "/a/text") == "value"
    assert _sysfs.text(source, "/a/empty") is None
    assert _sysfs.integer(source, "/a/decimal") == 42
    assert _sysfs.integer(source, "/a/hex") == 31
    assert _sysfs.integer(source, "/a/word") is None
    assert _sysfs.integer(source, "/a/none") is None
    assert _sysfs.numa_node(source, "/a/numa") is None
    assert _sysfs.numa_node(source, "/a/numa1") == 1
    link(tmp_path / "gpu-01" / "root", "a/driver", "../bus/drivers/mlx5_core")
    assert _sysfs.link_name(source, "/a/driver") == "mlx5_core"
    assert _sysfs.link_name(source, "/a/none") is None
    assert _sysfs.link_name(source, "/a/text") is None


@pytest.mark.parametrize(
    ("value", "number"),
    [("32.0 GT/s PCIe", 32.0), ("400 Gb/sec (4X NDR)", 400.0), ("2.5 GT/s", 2.5), ("Unknown", None), (None, None)],
)
def test_decimal(value: str | None, number: float | None) -> None:
    assert _sysfs.decimal(value) == number


def test_addresses_sort_as_nvidia_smi_numbers_them() -> None:
    addresses = ["10000:01:00.0", "0000:9a:00.0", "0009:01:00.0", "0000:18:00.1", "0000:18:00.0"]
    assert sorted(addresses, key=_sysfs.pci_sort_key) == [
        "0000:18:00.0",
        "0000:18:00.1",
        "0000:9a:00.0",
        "0009:01:00.0",
        "10000:01:00.0",
    ]
