# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DOCA-OFED's packages."""

from __future__ import annotations

from deb import Package
from parts import LAB, on, unit_scripts


def packages(release: str, ofed: str) -> list[Package]:
    base, revision = ofed.split("-")
    kernel = f"{base}.OFED.{ofed.replace('-', '.')}-1"
    unit = (
        "[Unit]\nDescription=openibd - configure Mellanox devices\n"
        "Before=network-pre.target\nWants=network-pre.target\n\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/etc/init.d/openibd start bootid\n"
        "ExecStop=/etc/init.d/openibd stop\n\n[Install]\nWantedBy=multi-user.target\n"
    )
    return [
        Package(
            "doca-ofed",
            f"{release}-1",
            "DOCA-OFED metapackage",
            "contrib/metapackages",
            relations={
                "Depends": f"mlnx-ofed-kernel-dkms (= {kernel}), mlnx-tools (>= {base}), ofed-scripts (= {ofed})"
            },
        ),
        Package(
            "mlnx-ofed-kernel-dkms",
            kernel,
            "Mellanox OFED kernel modules (DKMS)",
            "contrib/kernel",
            relations={"Depends": f"mlnx-ofed-kernel-utils (= {kernel})"},
            scripts={
                "postinst": on(
                    "configure", f"{LAB} dkms installed mlnx-ofed-kernel {base}", f"{LAB} stack doca --version {ofed}"
                ),
                "prerm": on("remove|upgrade|deconfigure", f"{LAB} dkms remove mlnx-ofed-kernel {base}")
                + on("remove", f"{LAB} stack inbox"),
            },
        ),
        Package(
            "mlnx-ofed-kernel-utils",
            kernel,
            "Userspace tools to restart and tune mlnx-ofed kernel modules",
            files={
                "/etc/init.d/openibd": "#!/bin/sh\n# Stand-in: the modules come with gpu-fabric-lab.\nexit 0\n",
                "/lib/systemd/system/openibd.service": unit,
            },
            scripts=unit_scripts("openibd.service", enable=True),
        ),
        Package("mlnx-tools", f"{base}.{revision}", "Userspace tools to restart and tune MLNX_OFED kernel modules"),
        Package("ofed-scripts", ofed, "MLNX_OFED utilities"),
    ]
