# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that write one host take turns; those that only read never wait."""

from __future__ import annotations

import errno
import importlib
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml
from module_runs import run_module

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _io, _locks
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure

ROOT = pathlib.Path(__file__).parents[4]
PACKAGE = "ansible_collections.railyard.gpu_fabric.plugins"
SOURCES = {path.stem: path.read_text() for path in (ROOT / "plugins/modules").glob("*.py")}
# Those without a main() are the documentation of what runs on the controller.
WRITERS = sorted(name for name, text in SOURCES.items() if "._writes\n" in text and "def main(" in text)


@pytest.fixture
def lock(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(_locks, "RUNTIME_DIRECTORY", str(tmp_path / "run/gpu_fabric"))
    return tmp_path / "run/gpu_fabric/writer.lock"


@pytest.fixture
def another(lock: pathlib.Path) -> t.Iterator[subprocess.Popen[str]]:
    """A run from elsewhere that is in the middle of package_set."""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'collections')!r})\n"
        f"from {PACKAGE}.module_utils import _locks\n"
        f"_locks.RUNTIME_DIRECTORY = {str(lock.parent)!r}\n"
        "with _locks.only_writer('package_set'):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


class Time:
    """A clock that goes by what is slept."""

    def __init__(self, then: t.Callable[[], object] = lambda: None, after: float = 0) -> None:
        self.now, self.then, self.after = 0.0, then, after

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.after:
            self.then()


def test_the_other_run_is_waited_for_then_named(lock: pathlib.Path, another: subprocess.Popen[str]) -> None:
    time = Time()
    with pytest.raises(Failure) as caught, _locks.only_writer("nic_settings", clock=time.clock, sleep=time.sleep):
        raise AssertionError("two at once")
    assert 60 <= time.now < 61
    said = str(caught.value)
    assert re.match(
        rf"Another run changes this host: {lock} is held by process {another.pid} \(package_set: \S*python.*\) since "
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\. It did not end within 60 s, and nothing was changed\. Let it",
        said,
    ), said
    assert caught.value.details["pid"] == another.pid and caught.value.details["lock"] == str(lock)


def test_it_goes_on_as_soon_as_the_other_has_ended(another: subprocess.Popen[str]) -> None:
    def end() -> None:
        # Killed, not ended: the kernel takes the lock back, and no file has to be removed by hand.
        another.kill()
        another.wait()

    time = Time(end, after=3)
    with _locks.only_writer("nic_settings", clock=time.clock, sleep=time.sleep):
        assert 3 <= time.now < 5


def test_the_lock_is_for_one_call_and_no_command_inherits_it(lock: pathlib.Path) -> None:
    with _locks.only_writer("nic_settings"):
        held = _locks.holder(str(lock))
        assert held is not None
        daemon = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        assert _locks.holder(str(lock)) is None
        with _locks.only_writer("nic_settings", clock=Time().clock, sleep=Time().sleep):
            pass
    finally:
        daemon.kill()
        daemon.wait()
    assert lock.stat().st_mode & 0o777 == 0o600


def test_the_lock_is_given_back_by_a_failure(lock: pathlib.Path) -> None:
    with pytest.raises(Failure, match="no carrier"), _locks.only_writer("nic_settings"):
        raise Failure("no carrier")
    assert _locks.holder(str(lock)) is None


def test_a_host_without_run_has_the_lock_beside_the_state(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_locks, "RUNTIME_DIRECTORY", str(tmp_path / "run/gpu_fabric"))
    monkeypatch.setattr(_locks, "STATE_DIRECTORY", str(tmp_path / "state"))
    with _locks.only_writer("nic_settings"):
        assert (tmp_path / "state/writer.lock").exists() and not (tmp_path / "run").exists()


def test_a_lock_that_cannot_be_opened_is_named(lock: pathlib.Path) -> None:
    lock.mkdir(parents=True)
    with pytest.raises(Failure, match=rf"Cannot open the lock {lock}: Is a directory"), _locks.only_writer("x"):
        raise AssertionError("without a lock")


def failing(code: int) -> t.Callable[..., t.NoReturn]:
    """A call of the system that fails, in the kernel's words."""

    def call(*_args: object) -> t.NoReturn:
        raise OSError(code, os.strerror(code))

    return call


def test_a_file_system_that_keeps_no_locks_is_named(lock: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_locks.fcntl, "flock", failing(errno.ENOLCK))
    with pytest.raises(Failure, match=rf"Cannot lock {lock}: No locks available\. Nothing"), _locks.only_writer("x"):
        raise AssertionError("without a lock")
    # dpkg's own lock is not known there either; apt tells by itself.
    assert _locks.holder(str(lock)) is None


def test_who_is_not_root_is_told_so(lock: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_io.os, "mkdir", failing(errno.EACCES))
    with pytest.raises(Failure, match=rf"{lock.parent}: Permission denied; it takes root"), _locks.only_writer("x"):
        raise AssertionError("without a lock")


def test_a_full_file_system_keeps_the_lock(lock: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_locks.os, "pwrite", failing(errno.ENOSPC))
    with _locks.only_writer("nic_settings"):
        assert _locks.holder(str(lock)) is not None


def test_there_are_modules_that_write() -> None:
    assert len(WRITERS) >= 11 and {"package_set", "fabric_links", "nic_firmware_config"} <= set(WRITERS)


@pytest.mark.parametrize("name", WRITERS)
def test_every_module_that_writes_keeps_out_of_the_others_way(
    name: str, another: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_locks, "WAIT_S", 0)
    module = importlib.import_module(f"{PACKAGE}.modules.{name}")
    empty: dict[str, t.Any] = {"list": [], "dict": {}, "str": "x"}
    options = yaml.safe_load(module.DOCUMENTATION)["options"]
    required = {key: empty[option["type"]] for key, option in options.items() if option.get("required")}
    # Should it not be kept out, there is nothing to take away.
    result = run_module(module.main, **required, **({"state": "absent"} if "state" in options else {}))
    assert result["failed"] and f"held by process {another.pid} (package_set: " in result["msg"]


def test_check_mode_does_not_wait(another: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(f"{PACKAGE}.modules.managed_files")
    monkeypatch.setattr(_locks, "WAIT_S", 0)
    result = run_module(module.main, files=[], _ansible_check_mode=True)
    assert not result["failed"] and result["changed"] is False
