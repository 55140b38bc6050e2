# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's packages of which the lab has stand-ins: names, versions, relations as in the vendor's repositories.

Several versions of everything, so that pins, holds, upgrades and downgrades have something to decide about.
Maintainer scripts tell the hardware stand-ins what is installed now (`gpu-fabric-lab`, see railyard_lab/README.md).
"""

from __future__ import annotations

from collections.abc import Callable

from deb import Package

LAB = "/usr/local/sbin/gpu-fabric-lab"  # apt gives maintainer scripts a PATH without /usr/local

DRIVERS = ("570.172.08", "575.57.08", "580.82.07", "580.95.05", "580.105.08")
UNSUFFIXED_FABRIC_MANAGER_FROM = 580
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


def on(word: str, *commands: str) -> str:
    """Shell text of a maintainer script: run `commands` when called for `word`."""
    body = "".join(f"  {command}\n" for command in commands)
    return f'case "$1" in {word})\n{body};; esac\n'


def unit_scripts(unit: str, *, enable: bool, configure: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> dict[str, str]:
    """What a package with a service does at installation and removal."""
    start = (f"systemctl enable {unit} >/dev/null 2>&1 || true",) if enable else ()
    return {
        "postinst": on("configure", *configure, "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi", *start),
        "prerm": on("remove", f"if [ -d /run/systemd/system ]; then systemctl disable --now {unit} >/dev/null 2>&1 || true; fi",
                    *remove),
        "postrm": "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n",
    }  # fmt: skip


def shared_object(label: str) -> bytes:
    """An ELF header and a text: enough for ldconfig, nothing to run."""
    header = bytes.fromhex("7f454c46020101000000000000000000" "03003e0001000000")
    return header + bytes(28) + (64).to_bytes(2, "little") + (56).to_bytes(2, "little") + bytes(8) + label.encode() + b"\0"


def library(stem: str, soname: str, version: str) -> dict[str, str | bytes]:
    directory = "/usr/lib/x86_64-linux-gnu"
    return {
        f"{directory}/{stem}.{version}": shared_object(f"{stem} {version}"),
        f"{directory}/{soname}": f"->{stem}.{version}",
    }


def persistenced_files() -> dict[str, str]:
    return {
        "/usr/bin/nvidia-persistenced": (
            "#!/usr/bin/python3 -B\n"
            "# Stand-in: stays while a driver is loaded, as the real daemon does.\n"
            "import os, pathlib, signal, sys\n"
            "if not pathlib.Path('/proc/driver/nvidia/version').exists():\n"
            "    sys.exit('nvidia-persistenced failed to initialize. Check syslog for more details.')\n"
            "if os.fork():\n    sys.exit(0)\n"
            "os.setsid()\n"
            "pathlib.Path('/run/nvidia-persistenced').mkdir(exist_ok=True)\n"
            "pathlib.Path('/run/nvidia-persistenced/nvidia-persistenced.pid').write_text(f'{os.getpid()}\\n')\n"
            "signal.pause()\n"
        ),
        "/lib/systemd/system/nvidia-persistenced.service": (
            "[Unit]\nDescription=NVIDIA Persistence Daemon\nWants=syslog.target\n\n"
            "[Service]\nType=forking\nPIDFile=/run/nvidia-persistenced/nvidia-persistenced.pid\nRestart=on-failure\n"
            "ExecStart=/usr/bin/nvidia-persistenced --verbose\nExecStopPost=/bin/rm -rf /run/nvidia-persistenced\n\n"
            "[Install]\nWantedBy=multi-user.target\n"
        ),
    }


def driver_for_debian(version: str) -> list[Package]:
    """Names of the repository for Debian: the same for every branch."""
    full = f"{version}-1"
    same = f"(= {full})"
    source = "nvidia-graphics-drivers"

    def kernel(name: str, flavour: str, other: str, summary: str) -> Package:
        return Package(
            name, full, summary, "contrib/kernel", source=source,
            relations={"Depends": f"nvidia-kernel-support {same}, nvidia-modprobe",
                       "Provides": f"nvidia-kernel-dkms-any (= {full})", "Conflicts": other, "Replaces": other},
            files={f"/usr/src/nvidia-{version}/dkms.conf": f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\n'},
            scripts={
                "postinst": on("configure", f"{LAB} dkms installed nvidia {version}",
                               f"{LAB} driver install --version {version} --flavour {flavour} --no-library"),
                "prerm": on("remove|upgrade|deconfigure", f"{LAB} dkms remove nvidia {version}")
                + on("remove", f"{LAB} driver remove"),
            },
        )  # fmt: skip

    return [
        kernel("nvidia-kernel-open-dkms", "open", "nvidia-kernel-dkms", "NVIDIA open kernel modules (DKMS)"),
        kernel("nvidia-kernel-dkms", "proprietary", "nvidia-kernel-open-dkms", "NVIDIA proprietary kernel modules (DKMS)"),
        Package("nvidia-kernel-support", full, "NVIDIA kernel module support files", source=source,
                relations={"Depends": f"firmware-nvidia-gsp {same}"},
                files={"/etc/modprobe.d/nvidia.conf": "blacklist nouveau\n"}, conffiles=("/etc/modprobe.d/nvidia.conf",)),
        Package("firmware-nvidia-gsp", full, "NVIDIA GSP firmware", "non-free-firmware/kernel", source=source),
        Package("libnvidia-ml1", full, "NVIDIA Management Library", source=source,
                files=library("libnvidia-ml.so", "libnvidia-ml.so.1", version),
                scripts={"postinst": on("configure", f"{LAB} driver library --version {version}")}),
        Package("libcuda1", full, "NVIDIA CUDA driver library", source=source,
                relations={"Depends": f"libnvidia-ptxjitcompiler1 {same}"}, files=library("libcuda.so", "libcuda.so.1", version)),
        Package("libnvidia-ptxjitcompiler1", full, "NVIDIA PTX JIT compiler library", source=source),
        Package("libnvidia-cfg1", full, "NVIDIA OpenGL/GLX configuration library", source=source),
        Package("nvidia-modprobe", full, "Load the NVIDIA kernel modules and create device files", source=source),
        Package("nvidia-persistenced", full, "NVIDIA persistence daemon", source=source,
                relations={"Depends": f"libnvidia-cfg1 {same}"}, files=persistenced_files(),
                scripts=unit_scripts("nvidia-persistenced.service", enable=True)),
        Package("nvidia-driver-cuda", full, "NVIDIA driver, compute parts", source=source,
                relations={"Depends": f"nvidia-kernel-dkms-any {same}, libcuda1 {same}, libnvidia-ml1 {same}, "
                           f"nvidia-persistenced {same}"}),
        Package("nvidia-driver", full, "NVIDIA driver metapackage", source=source,
                relations={"Depends": f"nvidia-kernel-dkms-any {same}, libnvidia-cfg1 {same}"}),
        Package("nvidia-open", full, "NVIDIA driver with open kernel modules", "contrib/metapackages",
                relations={"Depends": f"nvidia-driver {same}, nvidia-driver-cuda {same}, nvidia-kernel-open-dkms {same}"}),
        Package("cuda-drivers", full, "NVIDIA driver with proprietary kernel modules", "contrib/metapackages",
                relations={"Depends": f"nvidia-driver {same}, nvidia-driver-cuda {same}, nvidia-kernel-dkms {same}"}),
        Package("nvidia-imex", full, "NVIDIA IMEX daemon", source="nvidia-imex",
                files={"/etc/nvidia-imex/config.cfg": "LOG_LEVEL=4\n",
                       "/lib/systemd/system/nvidia-imex.service": "[Unit]\nDescription=NVIDIA IMEX service\n"
                       "ConditionPathExists=/proc/driver/nvidia/capabilities/fabric-imex-mgmt\n\n[Service]\nType=oneshot\n"
                       "RemainAfterExit=yes\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n"},
                conffiles=("/etc/nvidia-imex/config.cfg",), scripts=unit_scripts("nvidia-imex.service", enable=False)),
        Package("libnvsdm", full, "NVIDIA NVSwitch device monitoring library", source="libnvsdm"),
        fabric_manager(version),
    ]  # fmt: skip


def fabric_manager(version: str) -> Package:
    major = int(version.split(".")[0])
    plain = major >= UNSUFFIXED_FABRIC_MANAGER_FROM
    name = "nvidia-fabricmanager" if plain else f"nvidia-fabricmanager-{major}"
    rivals = ", ".join(f"nvidia-fabricmanager-{m}" for m in sorted({int(d.split(".")[0]) for d in DRIVERS})
                       if f"nvidia-fabricmanager-{m}" != name)  # fmt: skip
    # Every name ships the same files, so each refuses the others.
    others = ", ".join(part for part in (rivals, "" if plain else "nvidia-fabricmanager") if part)
    return Package(
        name, f"{version}-1", "NVIDIA Fabric Manager for NVSwitch systems", "contrib/utils", source="fabricmanager",
        relations={"Conflicts": others, "Replaces": others},
        files={
            "/usr/share/nvidia/nvswitch/fabricmanager.cfg": "LOG_LEVEL=4\nLOG_FILE_NAME=/var/log/fabricmanager.log\n"
            "DAEMONIZE=1\nFABRIC_MODE=0\n",
            "/lib/systemd/system/nvidia-fabricmanager.service": (
                "[Unit]\nDescription=NVIDIA fabric manager service\nAfter=network-online.target\n"
                "Requires=network-online.target\n\n[Service]\nUser=root\nPrivateTmp=false\nType=forking\n"
                "ExecStart=/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg\n"
                "PIDFile=/run/nvidia-fabricmanager/nv-fabricmanager.pid\nLimitCORE=infinity\n\n"
                "[Install]\nWantedBy=multi-user.target\n"
            ),
        },
        scripts=unit_scripts("nvidia-fabricmanager.service", enable=False,
                             configure=(f"{LAB} fabricmanager install --version {version}",),
                             remove=(f"{LAB} fabricmanager remove",)),
    )  # fmt: skip


def driver_for_ubuntu(version: str) -> list[Package]:
    """Names of Ubuntu and of the repository for it: the branch is part of the name."""
    major = version.split(".")[0]
    full = f"{version}-0ubuntu1"
    same = f"(= {full})"
    source = f"nvidia-graphics-drivers-{major}"
    found = [
        Package(f"libnvidia-compute-{major}", full, "NVIDIA libcompute package", source=source,
                scripts={"postinst": on("configure", f"{LAB} driver library --version {version}")}),
        Package(f"nvidia-utils-{major}", full, "NVIDIA driver support binaries", source=source,
                relations={"Depends": f"libnvidia-compute-{major} {same}"}),
        Package(f"nvidia-compute-utils-{major}", full, "NVIDIA compute utilities", source=source,
                relations={"Depends": f"libnvidia-compute-{major} {same}", "Conflicts": "nvidia-persistenced"},
                files=persistenced_files(), scripts=unit_scripts("nvidia-persistenced.service", enable=True)),
    ]  # fmt: skip
    for flavour, suffix in (("open", "-open"), ("proprietary", "")):
        other = f"nvidia-dkms-{major}{'' if suffix else '-open'}"
        found += [
            Package(f"nvidia-dkms-{major}{suffix}", full, f"NVIDIA DKMS package, {flavour} kernel modules", source=source,
                    relations={"Conflicts": other, "Replaces": other},
                    scripts={"postinst": on("configure", f"{LAB} dkms installed nvidia {version}",
                                            f"{LAB} driver install --version {version} --flavour {flavour} --no-library"),
                             "prerm": on("remove|upgrade|deconfigure", f"{LAB} dkms remove nvidia {version}")
                             + on("remove", f"{LAB} driver remove")}),
            Package(f"nvidia-headless-no-dkms-{major}{suffix}", full, "NVIDIA headless metapackage", source=source,
                    relations={"Depends": f"libnvidia-compute-{major} {same}, nvidia-compute-utils-{major} {same}"}),
            Package(f"nvidia-driver-{major}{suffix}", full, "NVIDIA driver metapackage", source=source,
                    relations={"Depends": f"nvidia-dkms-{major}{suffix} {same}, nvidia-utils-{major} {same}, "
                               f"nvidia-compute-utils-{major} {same}"}),
        ]  # fmt: skip
    return found


def nvcc(series: str, release: str) -> str:
    return (
        "#!/bin/sh\n"
        "case $1 in -V|--version) ;; *) echo 'nvcc fatal   : No input files specified; use option --help for more information'"
        " >&2; exit 1;; esac\n"
        "cat <<'END'\nnvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
        "Built on Wed_Aug_20_01:58:59_PM_PDT_2025\n"
        f"Cuda compilation tools, release {series}, V{release}\n"
        f"Build cuda_{series}.r{series}/compiler.36424714_0\nEND\n"
    )


def toolkit(series: str, version: str, release: str) -> Package:
    home = f"/usr/local/cuda-{series}"
    upstream = version.split("-")[0]
    priority = "".join(part.rjust(2, "0") for part in series.split("."))
    alternative = f"update-alternatives --install /usr/local/cuda cuda {home} {priority}"
    return Package(
        f"cuda-toolkit-{series.replace('.', '-')}", version, f"CUDA Toolkit {series} metapackage", "contrib/devel",
        files={
            f"{home}/version.json": f'{{\n   "cuda" : {{\n      "name" : "CUDA SDK",\n      "version" : "{upstream}"\n   }},\n'
            f'   "cuda_nvcc" : {{\n      "name" : "CUDA NVCC",\n      "version" : "{release}"\n   }}\n}}\n',
            f"{home}/bin/nvcc": nvcc(series, release),
        },
        scripts={
            "postinst": on("configure", alternative, f"{LAB} cuda install --version {series}"),
            "prerm": on("remove", f"update-alternatives --remove cuda {home}", f"{LAB} cuda remove"),
        },
    )  # fmt: skip


def nccl(version: str, cuda: str) -> list[Package]:
    full = f"{version}-1+cuda{cuda}"
    major, minor, patch = version.split(".")
    code = int(major) * 10000 + int(minor) * 100 + int(patch)
    header = (
        f"#ifndef NCCL_H_\n#define NCCL_H_\n#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH {patch}\n"
        f'#define NCCL_SUFFIX ""\n#define NCCL_VERSION_CODE {code}\n#endif\n'
    )
    return [
        Package("libnccl2", full, "NVIDIA Collective Communication Library (NCCL) runtime", source="nccl",
                files=library("libnccl.so", "libnccl.so.2", version),
                scripts={"postinst": on("configure", f"{LAB} nccl install --version {version}"),
                         "prerm": on("remove", f"{LAB} nccl remove")}),
        Package("libnccl-dev", full, "NVIDIA Collective Communication Library (NCCL) development files", "contrib/libdevel",
                source="nccl", relations={"Depends": f"libnccl2 (= {full})"},
                files={"/usr/include/nccl.h": header, "/usr/lib/x86_64-linux-gnu/libnccl.so": "->libnccl.so.2"}),
    ]  # fmt: skip


def gdrcopy(version: str) -> list[Package]:
    upstream = version.split("-")[0]
    return [
        Package("gdrdrv-dkms", version, "GPUDirect RDMA copy kernel module (DKMS)", "contrib/kernel",
                files={f"/usr/src/gdrdrv-{upstream}/dkms.conf": f'PACKAGE_NAME="gdrdrv"\nPACKAGE_VERSION="{upstream}"\n'},
                scripts={"postinst": on("configure", f"{LAB} dkms installed gdrdrv {upstream}"),
                         "prerm": on("remove|upgrade|deconfigure", f"{LAB} dkms remove gdrdrv {upstream}")}),
        Package("libgdrapi", version, "GPUDirect RDMA copy library", files=library("libgdrapi.so", "libgdrapi.so.2", upstream)),
        Package("gdrcopy", version, "GPUDirect RDMA copy metapackage",
                relations={"Depends": f"gdrdrv-dkms (= {version}), libgdrapi (= {version})"}),
    ]  # fmt: skip


def other_nvidia() -> list[Package]:
    found = [Package("nvlsm", version, "NVLink Subnet Manager", "contrib/utils") for version in NVLSM]
    for name, versions in DCGM.items():
        unit = "nvidia-dcgm.service"
        text = "[Unit]\nDescription=NVIDIA DCGM service\n\n[Service]\nExecStart=/bin/sleep infinity\n\n[Install]\nWantedBy=multi-user.target\n"  # noqa: E501
        rival = next(other for other in DCGM if other != name)
        found += [
            Package(name, version, "NVIDIA Data Center GPU Manager", "contrib/utils",
                    relations={"Conflicts": rival, "Replaces": rival}, files={f"/lib/systemd/system/{unit}": text},
                    scripts=unit_scripts(unit, enable=False))
            for version in versions
        ]  # fmt: skip
    for version in GDRCOPY:
        found += gdrcopy(version)
    return found


def nvidia() -> list[Package]:
    found: list[Package] = []
    for version in DRIVERS:
        found += driver_for_debian(version) + driver_for_ubuntu(version)
    for series, (versions, release) in TOOLKITS.items():
        found += [toolkit(series, version, release) for version in versions]
    for version, builds in NCCL.items():
        for cuda in builds:
            found += nccl(version, cuda)
    return found + other_nvidia()


def keyring(keys: Callable[[], bytes]) -> list[Package]:
    """The package that brings the repository's key, in two versions."""
    path = "/usr/share/keyrings/cuda-archive-keyring.gpg"
    pin = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
    return [
        Package("cuda-keyring", version, "GPG keyring of the CUDA repository", "contrib/utils", architecture="all",
                files={path: keys(), "/etc/apt/preferences.d/cuda-repository-pin-600": pin})
        for version in ("1.0-1", "1.1-1")
    ]  # fmt: skip


def doca(release: str, ofed: str) -> list[Package]:
    base, revision = ofed.split("-")
    kernel = f"{base}.OFED.{ofed.replace('-', '.')}-1"
    unit = ("[Unit]\nDescription=openibd - configure Mellanox devices\nBefore=network-pre.target\nWants=network-pre.target\n\n"
            "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/etc/init.d/openibd start bootid\n"
            "ExecStop=/etc/init.d/openibd stop\n\n[Install]\nWantedBy=multi-user.target\n")  # fmt: skip
    return [
        Package("doca-ofed", f"{release}-1", "DOCA-OFED metapackage", "contrib/metapackages",
                relations={"Depends": f"mlnx-ofed-kernel-dkms (= {kernel}), mlnx-tools (>= {base}), ofed-scripts (= {ofed})"}),
        Package("mlnx-ofed-kernel-dkms", kernel, "Mellanox OFED kernel modules (DKMS)", "contrib/kernel",
                relations={"Depends": f"mlnx-ofed-kernel-utils (= {kernel})"},
                scripts={"postinst": on("configure", f"{LAB} dkms installed mlnx-ofed-kernel {base}",
                                        f"{LAB} stack doca --version {ofed}"),
                         "prerm": on("remove|upgrade|deconfigure", f"{LAB} dkms remove mlnx-ofed-kernel {base}")
                         + on("remove", f"{LAB} stack inbox")}),
        Package("mlnx-ofed-kernel-utils", kernel, "Userspace tools to restart and tune mlnx-ofed kernel modules",
                files={"/etc/init.d/openibd": '#!/bin/sh\n# Stand-in: the modules come with gpu-fabric-lab.\nexit 0\n',
                       "/lib/systemd/system/openibd.service": unit},
                scripts=unit_scripts("openibd.service", enable=True)),
        Package("mlnx-tools", f"{base}.{revision}", "Userspace tools to restart and tune MLNX_OFED kernel modules"),
        Package("ofed-scripts", ofed, "MLNX_OFED utilities"),
    ]  # fmt: skip


def doca_all() -> list[Package]:
    return [package for release, ofed in DOCA.items() for package in doca(release, ofed)]
