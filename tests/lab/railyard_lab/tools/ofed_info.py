# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ofed_info of MLNX_OFED and DOCA-OFED."""

from __future__ import annotations

from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    state = _common.snapshot()
    version = state["stack"]["version"]
    short = f"OFED-internal-{version}"
    if argv[:1] == ["-s"]:
        print(f"{short}:")
    elif argv[:1] == ["-n"]:
        print(version)
    elif argv[:1] == ["-l"]:
        for package in (
            "ibverbs-providers",
            "libibverbs1",
            "mlnx-ofed-kernel-dkms",
            "mlnx-tools",
            "perftest",
            "rdma-core",
        ):
            print(package)
    else:
        print(f"{short}:\n\nmlnx-ofed-kernel-dkms:\n{version.replace('-', '.OFED.', 1)}\n")
    return 0
