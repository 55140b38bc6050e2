# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's packages of which the lab has stand-ins: names, versions, relations as in the vendor's repositories.

Several versions of everything, so that pins, holds, upgrades and downgrades have something to decide about.
Maintainer scripts tell the hardware stand-ins what is installed now (see railyard_lab/README.md).
"""

from __future__ import annotations

import doca
import driver
import toolkit
from deb import Package

DRIVERS = ("570.172.08", "575.57.08", "580.82.07", "580.95.05", "580.105.08")
# series → (package version, release of nvcc, build)
TOOLKITS = {
    "12.8": (("12.8.1-1",), "12.8.93"),
    "12.9": (("12.9.0-1", "12.9.1-1"), "12.9.86"),
    "13.0": (("13.0.0-1", "13.0.2-1"), "13.0.88"),
    "13.1": (("13.1.0-1",), "13.1.80"),
}
NCCL = {
    "2.26.5": ("12.9",),
    "2.27.7": ("12.9", "13.0"),
    "2.28.3": ("12.9", "13.0"),
    "2.28.9": ("12.9", "13.0", "13.1"),
}
DOCA = {"2.9.3": "24.10-3.2.5", "3.1.0": "25.07-0.9.7", "3.2.1": "25.10-1.7.1"}
NVLSM = ("2025.03.1-1", "2025.06.11-1")
DCGM = {"datacenter-gpu-manager": ("1:3.3.8", "1:3.3.9"), "datacenter-gpu-manager-4-core": ("1:4.4.0-1", "1:4.4.1-1")}
GDRCOPY = ("2.4.4-1", "2.5.1-1")


def nvidia() -> list[Package]:
    branches = sorted({version.split(".")[0] for version in DRIVERS})
    found: list[Package] = []
    for version in DRIVERS:
        found += driver.for_debian(version)
        found += driver.for_ubuntu(version)
        found.append(driver.fabric_manager(version, branches))
    for series, (versions, release) in TOOLKITS.items():
        found += [toolkit.cuda(series, version, release) for version in versions]
    for version, builds in NCCL.items():
        found += [package for cuda in builds for package in toolkit.nccl(version, cuda)]
    for version in GDRCOPY:
        found += toolkit.gdrcopy(version)
    for name, versions in DCGM.items():
        found += [
            toolkit.dcgm(name, version, rivals=[other for other in DCGM if other != name]) for version in versions
        ]
    found += [Package("nvlsm", version, "NVLink Subnet Manager", "contrib/utils") for version in NVLSM]
    return found


def mellanox() -> list[Package]:
    return [package for release, ofed in DOCA.items() for package in doca.packages(release, ofed)]
