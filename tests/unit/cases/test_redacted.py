# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A redacted bundle gives the findings of its original, under whatever secret: of each host as many, each as grave."""

from __future__ import annotations

import collections
import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_diagnose import (
    diagnose,
    host_directories,
    rack_outputs,
)
from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_redact import redact

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("RAILYARD_SHARED", HERE.parents[3] / "shared")) / "cases"
OURS = [path for case in sorted(HERE.glob("*/expect.yml")) for path in sorted(case.parent.glob("[fh]*/"))]
BUNDLES = OURS + [path for case in sorted(SHARED.glob("F*/case.yml")) for path in sorted(case.parent.glob("[fh]*/"))]
SECRETS = (b"rails", b"leaves")


def names(bundle: Path) -> set[str]:
    """As the playbook gives them: of the inventory, with their addresses."""
    hosts = rack_outputs(bundle)["inventory"].get("hosts", {})
    addresses = {str(variables["ansible_host"]) for variables in hosts.values() if "ansible_host" in variables}
    return {*host_directories(bundle), *hosts, *addresses}


def weights(findings: list[dict]) -> list[list[tuple]]:
    """Ids and severities, host by host, without the hosts' names."""
    hosts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for finding in findings:
        hosts[finding["host"]][finding["id"], finding["severity"]] += 1
    return sorted(sorted(counts.items()) for counts in hosts.values())


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: f"{path.parent.name[:40]}-{path.name}")
def test_the_findings_are_those_of_the_original(bundle, tmp_path):
    before = diagnose(bundle)["findings"]
    for secret in SECRETS:
        copy = tmp_path / secret.decode()
        shutil.copytree(bundle, copy, symlinks=True)
        redact(copy, names(bundle), secret)
        after = diagnose(copy)["findings"]
        assert weights(after) == weights(before), [(f["id"], f["host"], f["message"]) for f in after]
        assert not set(names(bundle)) & set(host_directories(copy))
