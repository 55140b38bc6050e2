# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's packages, under the names of the repository for Debian and of the one for Ubuntu."""

from __future__ import annotations

from deb import Package
from parts import LAB, library, on, unit_scripts

UNSUFFIXED_FABRIC_MANAGER_FROM = 580


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


def for_debian(version: str) -> list[Package]:
    """Names of the repository for Debian: the same for every branch."""
    full = f"{version}-1"
    same = f"(= {full})"
    source = "nvidia-graphics-drivers"

    def kernel(name: str, flavour: str, other: str, summary: str) -> Package:
        return Package(
            name,
            full,
            summary,
            "contrib/kernel",
            source=source,
            relations={
                "Depends": f"nvidia-kernel-support {same}, nvidia-modprobe",
                "Provides": f"nvidia-kernel-dkms-any (= {full})",
                "Conflicts": other,
                "Replaces": other,
            },
            files={f"/usr/src/nvidia-{version}/dkms.conf": f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\n'},
            scripts={
                "postinst": on(
                    "configure",
                    f"{LAB} dkms installed nvidia {version}",
                    f"{LAB} driver install --version {version} --flavour {flavour} --no-library",
                ),
                "prerm": on("remove|upgrade|deconfigure", f"{LAB} dkms remove nvidia {version}")
                + on("remove", f"{LAB} driver remove"),
            },
        )

    return [
        kernel("nvidia-kernel-open-dkms", "open", "nvidia-kernel-dkms", "NVIDIA open kernel modules (DKMS)"),
        kernel(
            "nvidia-kernel-dkms", "proprietary", "nvidia-kernel-open-dkms", "NVIDIA proprietary kernel modules (DKMS)"
        ),
        Package(
            "nvidia-kernel-support",
            full,
            "NVIDIA kernel module support files",
            source=source,
            relations={"Depends": f"firmware-nvidia-gsp {same}"},
            files={"/etc/modprobe.d/nvidia.conf": "blacklist nouveau\n"},
            conffiles=("/etc/modprobe.d/nvidia.conf",),
        ),
        Package("firmware-nvidia-gsp", full, "NVIDIA GSP firmware", "non-free-firmware/kernel", source=source),
        Package(
            "libnvidia-ml1",
            full,
            "NVIDIA Management Library",
            source=source,
            files=library("libnvidia-ml.so", "libnvidia-ml.so.1", version),
            scripts={"postinst": on("configure", f"{LAB} driver library --version {version}")},
        ),
        Package(
            "libcuda1",
            full,
            "NVIDIA CUDA driver library",
            source=source,
            relations={"Depends": f"libnvidia-ptxjitcompiler1 {same}"},
            files=library("libcuda.so", "libcuda.so.1", version),
        ),
        Package("libnvidia-ptxjitcompiler1", full, "NVIDIA PTX JIT compiler library", source=source),
        Package("libnvidia-cfg1", full, "NVIDIA OpenGL/GLX configuration library", source=source),
        Package("nvidia-modprobe", full, "Load the NVIDIA kernel modules and create device files", source=source),
        Package(
            "nvidia-persistenced",
            full,
            "NVIDIA persistence daemon",
            source=source,
            relations={"Depends": f"libnvidia-cfg1 {same}"},
            files=persistenced_files(),
            scripts=unit_scripts("nvidia-persistenced.service", enable=True),
        ),
        Package(
            "nvidia-driver-cuda",
            full,
            "NVIDIA driver, compute parts",
            source=source,
            relations={
                "Depends": f"nvidia-kernel-dkms-any {same}, libcuda1 {same}, libnvidia-ml1 {same}, "
                f"nvidia-persistenced {same}"
            },
        ),
        Package(
            "nvidia-driver",
            full,
            "NVIDIA driver metapackage",
            source=source,
            relations={"Depends": f"nvidia-kernel-dkms-any {same}, libnvidia-cfg1 {same}"},
        ),
        Package(
            "nvidia-open",
            full,
            "NVIDIA driver with open kernel modules",
            "contrib/metapackages",
            relations={"Depends": f"nvidia-driver {same}, nvidia-driver-cuda {same}, nvidia-kernel-open-dkms {same}"},
        ),
        Package(
            "cuda-drivers",
            full,
            "NVIDIA driver with proprietary kernel modules",
            "contrib/metapackages",
            relations={"Depends": f"nvidia-driver {same}, nvidia-driver-cuda {same}, nvidia-kernel-dkms {same}"},
        ),
        Package(
            "nvidia-imex",
            full,
            "NVIDIA IMEX daemon",
            source="nvidia-imex",
            files={
                "/etc/nvidia-imex/config.cfg": "LOG_LEVEL=4\n",
                "/lib/systemd/system/nvidia-imex.service": "[Unit]\nDescription=NVIDIA IMEX service\n"
                "ConditionPathExists=/proc/driver/nvidia/capabilities/fabric-imex-mgmt\n\n[Service]\nType=oneshot\n"
                "RemainAfterExit=yes\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n",
            },
            conffiles=("/etc/nvidia-imex/config.cfg",),
            scripts=unit_scripts("nvidia-imex.service", enable=False),
        ),
        Package("libnvsdm", full, "NVIDIA NVSwitch device monitoring library", source="libnvsdm"),
    ]


def fabric_manager(version: str, branches: list[str]) -> Package:
    major = int(version.split(".")[0])
    plain = major >= UNSUFFIXED_FABRIC_MANAGER_FROM
    name = "nvidia-fabricmanager" if plain else f"nvidia-fabricmanager-{major}"
    names = ["nvidia-fabricmanager", *(f"nvidia-fabricmanager-{branch}" for branch in branches)]
    # Every name ships the same files, so each refuses the others.
    others = ", ".join(other for other in names if other != name)
    return Package(
        name,
        f"{version}-1",
        "NVIDIA Fabric Manager for NVSwitch systems",
        "contrib/utils",
        source="fabricmanager",
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
        scripts=unit_scripts(
            "nvidia-fabricmanager.service",
            enable=False,
            configure=(f"{LAB} fabricmanager install --version {version}",),
            remove=(f"{LAB} fabricmanager remove",),
        ),
    )


def for_ubuntu(version: str) -> list[Package]:
    """Names of Ubuntu and of the repository for it: the branch is part of the name."""
    major = version.split(".")[0]
    full = f"{version}-0ubuntu1"
    same = f"(= {full})"
    source = f"nvidia-graphics-drivers-{major}"
    found = [
        Package(
            f"libnvidia-compute-{major}",
            full,
            "NVIDIA libcompute package",
            source=source,
            scripts={"postinst": on("configure", f"{LAB} driver library --version {version}")},
        ),
        Package(
            f"nvidia-utils-{major}",
            full,
            "NVIDIA driver support binaries",
            source=source,
            relations={"Depends": f"libnvidia-compute-{major} {same}"},
        ),
        Package(
            f"nvidia-compute-utils-{major}",
            full,
            "NVIDIA compute utilities",
            source=source,
            relations={"Depends": f"libnvidia-compute-{major} {same}", "Conflicts": "nvidia-persistenced"},
            files=persistenced_files(),
            scripts=unit_scripts("nvidia-persistenced.service", enable=True),
        ),
    ]
    for flavour, suffix in (("open", "-open"), ("proprietary", "")):
        other = f"nvidia-dkms-{major}{'' if suffix else '-open'}"
        found += [
            Package(
                f"nvidia-dkms-{major}{suffix}",
                full,
                f"NVIDIA DKMS package, {flavour} kernel modules",
                source=source,
                relations={"Conflicts": other, "Replaces": other},
                scripts={
                    "postinst": on(
                        "configure",
                        f"{LAB} dkms installed nvidia {version}",
                        f"{LAB} driver install --version {version} --flavour {flavour} --no-library",
                    ),
                    "prerm": on("remove|upgrade|deconfigure", f"{LAB} dkms remove nvidia {version}")
                    + on("remove", f"{LAB} driver remove"),
                },
            ),
            Package(
                f"nvidia-headless-no-dkms-{major}{suffix}",
                full,
                "NVIDIA headless metapackage",
                source=source,
                relations={"Depends": f"libnvidia-compute-{major} {same}, nvidia-compute-utils-{major} {same}"},
            ),
            Package(
                f"nvidia-driver-{major}{suffix}",
                full,
                "NVIDIA driver metapackage",
                source=source,
                relations={
                    "Depends": f"nvidia-dkms-{major}{suffix} {same}, nvidia-utils-{major} {same}, "
                    f"nvidia-compute-utils-{major} {same}"
                },
            ),
        ]
    return found
