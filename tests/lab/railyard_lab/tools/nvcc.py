# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvcc --version of the CUDA toolkit."""

from __future__ import annotations

from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    version = _common.snapshot()["cuda"]
    if not argv or argv[0] not in ("--version", "-V"):
        _common.error("nvcc fatal   : No input files specified; use option --help for more information")
        return 1
    release = ".".join(version.split(".")[:2])
    print("nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation")
    print("Built on Wed_Aug_20_01:58:59_PM_PDT_2025")
    print(f"Cuda compilation tools, release {release}, V{release}.88\nBuild cuda_{release}.r{release}/compiler.36424714_0")
    return 0
