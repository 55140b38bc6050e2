# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules around the facts: their options, and a run of each as Ansible runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args
from hosts import write

from ansible_collections.railyard.gpu_fabric.plugins.modules import bundle_collect, fabric_facts


class Exit(Exception):
    pass


class Fail(Exception):
    pass


def run(main: Callable[[], None], **options: Any) -> dict[str, Any]:
    def finish(_module: object, **result: Any) -> None:
        raise Exit(result)

    def fail(_module: object, **result: Any) -> None:
        raise Fail(result["msg"])

    with (
        patch_module_args(options),
        patch.object(basic.AnsibleModule, "exit_json", finish),
        patch.object(basic.AnsibleModule, "fail_json", fail),
        pytest.raises(Exit) as finished,
    ):
        main()
    result: dict[str, Any] = finished.value.args[0]
    json.dumps(result)
    return result


@pytest.fixture
def rack(tmp_path: Path) -> Path:
    write(tmp_path / "rack" / "gpu-01", {"uname_r.txt": "6.8.0-60\n"})
    write(tmp_path / "rack" / "gpu-02", {"uname_r.txt": "6.8.0-59\n"})
    write(tmp_path / "rack", {"inventory.ini": "gpu-01\ngpu-02\n"})
    return tmp_path / "rack"


class TestFabricFacts:
    def test_a_host_of_a_bundle(self, rack: Path) -> None:
        result = run(fabric_facts.main, capture=str(rack), host="gpu-02")
        assert result["ansible_facts"]["gpu_fabric"]["host"] == {"hostname": "gpu-02", "kernel": "6.8.0-59"}
        assert result["changed"] is False

    def test_the_folder_of_a_host(self, rack: Path) -> None:
        result = run(fabric_facts.main, capture=str(rack / "gpu-01"))
        assert result["ansible_facts"]["gpu_fabric"]["host"]["kernel"] == "6.8.0-60"

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"host": "gpu-01"}, ["gpu-01", "capture"]),
            ({"capture": "/nowhere/bundle"}, ["/nowhere/bundle", "no such folder"]),
            ({"host": "gpu-03", "capture": "RACK"}, ["gpu-03", "gpu-01, gpu-02"]),
            ({"host": "../gpu-01", "capture": "RACK"}, ["../gpu-01"]),
            ({"capture": "RACK"}, ["gpu-01, gpu-02"]),
        ],
    )
    def test_options_that_lead_nowhere(self, rack: Path, options: dict[str, str], words: list[str]) -> None:
        options = {key: str(rack) if value == "RACK" else value for key, value in options.items()}
        with pytest.raises(Fail) as failed:
            run(fabric_facts.main, **options)
        for word in words:
            assert word in str(failed.value)

    def test_this_machine(self) -> None:
        facts = run(fabric_facts.main, sysctl_keys=["kernel.ostype"])["ansible_facts"]["gpu_fabric"]
        assert facts["schema"] == 1
        assert facts["sysctl"]["kernel.ostype"] == "Linux"
        # Live, a list that is empty says that there is none.
        assert isinstance(facts["gpus"], list)
        assert facts["netdevs"]["lo"]["kind"] == "loopback"


class TestBundleCollect:
    def test_an_archive_that_only_its_owner_reads(self, tmp_path: Path) -> None:
        dest = tmp_path / "bundle.tar.gz"
        result = run(bundle_collect.main, dest=str(dest), nic_config=False, _ansible_tmpdir=str(tmp_path))
        assert result["changed"] is True
        assert result["size_bytes"] == dest.stat().st_size > 1000
        assert dest.stat().st_mode & 0o777 == 0o600

    def test_check_mode_writes_nothing(self, tmp_path: Path) -> None:
        dest = tmp_path / "bundle.tar.gz"
        assert run(bundle_collect.main, dest=str(dest), _ansible_check_mode=True)["changed"] is True
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("dest", ["missing/bundle.tar.gz", "."])
    def test_a_place_where_it_cannot_be_written(self, tmp_path: Path, dest: str) -> None:
        with pytest.raises(Fail, match="Cannot write the archive"):
            run(bundle_collect.main, dest=str(tmp_path / dest))
