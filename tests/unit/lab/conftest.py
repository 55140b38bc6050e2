# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab host in a temporary directory: its state, its tree, and its tools called in this process."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from railyard_lab import node, profile, toolbox
from railyard_lab import state as state_file

CORPUS = Path(os.environ.get("RAILYARD_SHARED", Path(__file__).resolve().parents[4] / "shared")) / "corpus"


class Answer(NamedTuple):
    rc: int
    out: str
    err: str


class Host:
    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.root, self._capture = root, capture

    def run(self, name: str, *argv: str) -> Answer:
        self._capture.readouterr()
        module = importlib.import_module(f"railyard_lab.tools.{toolbox.TOOLS[name].module}")
        try:
            code = module.main(name, list(argv))
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        return Answer(code, *self._capture.readouterr())

    def lab(self, *argv: str) -> Answer:
        from railyard_lab import cli

        self._capture.readouterr()
        code = cli.main(list(argv))
        return Answer(code, *self._capture.readouterr())

    @property
    def state(self) -> dict[str, Any]:
        return json.loads(state_file.path().read_text())

    def change(self, function: Callable[[dict[str, Any]], Any]) -> None:
        with state_file.change() as state:
            function(state)

    def nic(self, rdma: str) -> dict[str, Any]:
        found = state_file.nic_by(self.state, "rdma", rdma)
        assert found is not None
        return found

    def interface(self, name: str, **values: Any) -> None:
        self.change(lambda state: state["interfaces"].setdefault(name, {}).update(values))

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def reboot(self) -> None:
        _power_on(self.root, None, None)


def _power_on(root: Path, profile_name: str | None, name: str | None) -> None:
    """`node up`, or, for a host without a tree, the part of it that concerns the state."""
    if (root / "sys").is_dir():
        node.up(profile_name, name)
        return
    state = state_file.load() if state_file.exists() else profile.unfold(profile_name or "", name or "")
    node.boot(state)
    state_file.save(state)


@pytest.fixture
def make_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Host]:
    def make(profile_name: str = "hgx_h100_roce", name: str = "gpu-01", tree: bool = False) -> Host:
        root = tmp_path / name
        root.mkdir()
        monkeypatch.setenv("RAILYARD_LAB_ROOT", str(root))
        monkeypatch.delenv("RAILYARD_LAB_STATE", raising=False)
        if tree:
            (root / "sys").mkdir()
        _power_on(root, profile_name, name)
        return Host(root, capsys)

    return make


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    """The default profile; without its tree, which takes most of the time to make."""
    return make_host()


@pytest.fixture
def tree_host(make_host: Callable[..., Host]) -> Host:
    return make_host(tree=True)


@pytest.fixture
def recorded() -> Callable[[str], str]:
    def read(path: str) -> str:
        if not CORPUS.is_dir():
            pytest.skip(f"recorded outputs are not here: {CORPUS}")
        return (CORPUS / path).read_text(errors="replace")

    return read
