# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA, NCCL and the other packages of the CUDA repository."""

from __future__ import annotations

import json

from deb import Package
from parts import LAB, library, on, unit_scripts


def nvcc(series: str, release: str) -> str:
    return (
        "#!/bin/sh\n"
        "case $1 in -V|--version) ;; *)\n"
        "  echo 'nvcc fatal   : No input files specified; use option --help for more information' >&2; exit 1;; esac\n"
        "cat <<'END'\nnvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
        "Built on Wed_Aug_20_01:58:59_PM_PDT_2025\n"
        f"Cuda compilation tools, release {series}, V{release}\n"
        f"Build cuda_{series}.r{series}/compiler.36424714_0\nEND\n"
    )


def cuda(series: str, version: str, release: str) -> Package:
    home = f"/usr/local/cuda-{series}"
    contents = {
        "cuda": {"name": "CUDA SDK", "version": version.split("-")[0]},
        "cuda_nvcc": {"name": "CUDA NVCC", "version": release},
    }
    priority = "".join(part.rjust(2, "0") for part in series.split("."))
    alternative = f"update-alternatives --install /usr/local/cuda cuda {home} {priority}"
    return Package(
        f"cuda-toolkit-{series.replace('.', '-')}",
        version,
        f"CUDA Toolkit {series} metapackage",
        "contrib/devel",
        files={
            f"{home}/version.json": json.dumps(contents, indent=3) + "\n",
            f"{home}/bin/nvcc": nvcc(series, release),
        },
        scripts={
            "postinst": on("configure", alternative, f"{LAB} cuda install --version {series}"),
            "prerm": on("remove", f"update-alternatives --remove cuda {home}", f"{LAB} cuda remove"),
        },
    )


def nccl(version: str, cuda: str) -> list[Package]:
    full = f"{version}-1+cuda{cuda}"
    major, minor, patch = version.split(".")
    code = int(major) * 10000 + int(minor) * 100 + int(patch)
    header = (
        "#ifndef NCCL_H_\n#define NCCL_H_\n"
        f"#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH {patch}\n"
        f'#define NCCL_SUFFIX ""\n#define NCCL_VERSION_CODE {code}\n#endif\n'
    )
    return [
        Package(
            "libnccl2",
            full,
            "NVIDIA Collective Communication Library (NCCL) runtime",
            source="nccl",
            files=library("libnccl.so", "libnccl.so.2", version),
            scripts={
                "postinst": on("configure", f"{LAB} nccl install --version {version}"),
                "prerm": on("remove", f"{LAB} nccl remove"),
            },
        ),
        Package(
            "libnccl-dev",
            full,
            "NVIDIA Collective Communication Library (NCCL) development files",
            "contrib/libdevel",
            source="nccl",
            relations={"Depends": f"libnccl2 (= {full})"},
            files={"/usr/include/nccl.h": header, "/usr/lib/x86_64-linux-gnu/libnccl.so": "->libnccl.so.2"},
        ),
    ]


def gdrcopy(version: str) -> list[Package]:
    upstream = version.split("-")[0]
    return [
        Package(
            "gdrdrv-dkms",
            version,
            "GPUDirect RDMA copy kernel module (DKMS)",
            "contrib/kernel",
            files={f"/usr/src/gdrdrv-{upstream}/dkms.conf": f'PACKAGE_NAME="gdrdrv"\nPACKAGE_VERSION="{upstream}"\n'},
            scripts={
                "postinst": on("configure", f"{LAB} dkms installed gdrdrv {upstream}"),
                "prerm": on("remove|upgrade|deconfigure", f"{LAB} dkms remove gdrdrv {upstream}"),
            },
        ),
        Package(
            "libgdrapi",
            version,
            "GPUDirect RDMA copy library",
            files=library("libgdrapi.so", "libgdrapi.so.2", upstream),
        ),
        Package(
            "gdrcopy",
            version,
            "GPUDirect RDMA copy metapackage",
            relations={"Depends": f"gdrdrv-dkms (= {version}), libgdrapi (= {version})"},
        ),
    ]


def dcgm(name: str, version: str, rivals: list[str]) -> Package:
    unit = (
        "[Unit]\nDescription=NVIDIA DCGM service\n\n[Service]\nExecStart=/bin/sleep infinity\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    others = ", ".join(rivals)
    return Package(
        name,
        version,
        "NVIDIA Data Center GPU Manager",
        "contrib/utils",
        relations={"Conflicts": others, "Replaces": others},
        files={"/lib/systemd/system/nvidia-dcgm.service": unit},
        scripts=unit_scripts("nvidia-dcgm.service", enable=False),
    )


def keyring(key: bytes) -> list[Package]:
    """The package that brings the repository's key, in two versions."""
    path = "/usr/share/keyrings/cuda-archive-keyring.gpg"
    pin = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
    return [
        Package(
            "cuda-keyring",
            version,
            "GPG keyring of the CUDA repository",
            "contrib/utils",
            architecture="all",
            files={path: key, "/etc/apt/preferences.d/cuda-repository-pin-600": pin},
        )
        for version in ("1.0-1", "1.1-1")
    ]
