# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Synthetic `/sys`, `/proc` and `/etc` of machine types, for tests.

    from sysfs_trees import MACHINES, build_bundle
    folder = build_bundle(MACHINES["hgx_h100"](), tmp_path / "gpu-01")
    facts = gather(BundleSource(str(folder)))

`build(machine, root)` writes the tree alone, for a reader that takes a root.

A machine is a value (`spec.Machine`): change it with `dataclasses.replace` or with the helpers `machine.nic(name)` and
`machine.with_nic(name, state="DOWN")` before building.
"""

from .build import build
from .bundle import build_bundle
from .machines import MACHINES
from .spec import Bridge, Gpu, Machine, Netdev, Nic, Switch

__all__ = ["MACHINES", "Bridge", "Gpu", "Machine", "Netdev", "Nic", "Switch", "build", "build_bundle"]
