# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess

import pytest
import tomllib
from lab_rack import engine


def answers(monkeypatch, works):
    """Let `run` succeed where `works(argv)` says so; returns the calls."""
    calls = []

    def run(argv, env=None, timeout=60):
        calls.append(argv)
        if works(argv):
            return subprocess.CompletedProcess(argv, 0, "4.9.4\n", "")
        text = "docker: Error response from daemon: no such thing\n\nRun 'docker run --help' for more information\n"
        return subprocess.CompletedProcess(argv, 125, "", text)

    monkeypatch.setattr(engine, "run", run)
    monkeypatch.setattr(engine.shutil, "which", lambda name: f"/usr/bin/{name}")
    return calls


def test_an_engine_that_works_as_it_is_gets_no_configuration(monkeypatch):
    calls = answers(monkeypatch, lambda argv: True)
    found = engine.probe("podman", "i")
    assert found == {"runtime": "", "ulimits": [], "capabilities": []}
    assert engine.containers_conf(found) == ""
    assert len(calls) == 1


def test_limits_are_conceded_before_the_runtime(monkeypatch):
    answers(monkeypatch, lambda argv: any("--ulimit" in part for part in argv))
    found = engine.probe("podman", "i")
    assert found["runtime"] == ""
    assert found["ulimits"]
    conf = tomllib.loads(engine.containers_conf(found))
    assert conf == {"containers": {"default_ulimits": found["ulimits"]}}


def test_another_runtime_is_tried_where_limits_do_not_help(monkeypatch):
    answers(monkeypatch, lambda argv: "--runtime=runc" in argv)
    found = engine.probe("podman", "i")
    assert tomllib.loads(engine.containers_conf(found)) == {"engine": {"runtime": "runc"}}


def test_docker_gets_capabilities_by_name_where_privileged_is_refused(monkeypatch):
    answers(monkeypatch, lambda argv: "--privileged" not in argv)
    found = engine.probe("docker", "i")
    assert "NET_ADMIN" in found["capabilities"] or not engine.capabilities()
    assert not found["ulimits"]


def test_when_nothing_helps_every_try_and_the_engines_own_words_are_shown(monkeypatch):
    answers(monkeypatch, lambda argv: False)
    with pytest.raises(engine.EngineError) as raised:
        engine.probe("docker", "i")
    assert "no such thing" in str(raised.value)
    assert "--help" not in str(raised.value)


def test_the_first_engine_that_answers_is_taken(monkeypatch):
    answers(monkeypatch, lambda argv: argv[0] == "docker")
    assert engine.detect() == {"engine": "docker", "version": "4.9.4"}


def test_no_engine_says_what_to_install(monkeypatch):
    monkeypatch.setattr(engine.shutil, "which", lambda name: None)
    with pytest.raises(engine.EngineError, match="apt-get install podman"):
        engine.detect()


def test_ceiling_bounds_every_limit():
    for text in engine.limits(500):
        assert int(text.split("=")[1].split(":")[0]) <= 500


def test_write_if_changed_tells_whether_it_wrote(tmp_path):
    path = tmp_path / "deep/file"
    assert engine.write_if_changed(path, "a", 0o600) is True
    assert engine.write_if_changed(path, "a", 0o600) is False
    assert path.stat().st_mode & 0o777 == 0o600
    assert engine.write_if_changed(path, "b") is True


@pytest.mark.parametrize("busy", [1, 99])
def test_containers_that_do_not_go_at_once_are_removed_again(monkeypatch: pytest.MonkeyPatch, busy: int) -> None:
    calls: list[list[str]] = []

    def podman(argv: list[str], env: object = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        calls.append(argv)
        return subprocess.CompletedProcess(argv, 1, "", "Error: given PIDs did not die within timeout")

    def left(*_: object) -> list[dict[str, str]]:
        return [{"Name": "rack-gpu-02"}, {"Name": "other"}] if len(calls) <= busy else [{"Name": "other"}]

    monkeypatch.setattr(engine, "run", podman)
    monkeypatch.setattr(engine, "inspect_all", left)
    monkeypatch.setattr(engine.time, "sleep", lambda seconds: None)
    if busy == 1:
        engine.remove("podman", ["rack-gpu-01", "rack-gpu-02"])
        assert [argv[5:] for argv in calls] == [["rack-gpu-01", "rack-gpu-02"], ["rack-gpu-02"]]
        return
    with pytest.raises(engine.EngineError, match=r"podman rm leaves rack-gpu-02: .*did not die"):
        engine.remove("podman", ["rack-gpu-01", "rack-gpu-02"])
    assert len(calls) == engine.REMOVALS
