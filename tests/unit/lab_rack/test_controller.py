# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hash, lock, room, seed and daemon: what the rack does on the controller besides cabling."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request

import pytest
from lab_rack import __main__ as program
from lab_rack import content, daemon, engine, hardware, lock, prune, room, seed
from test_cables import rack


def test_hash_follows_names_bytes_and_modes(tmp_path):
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/file").write_text("a")
    first = content.content_hash([tree])
    assert content.content_hash([tree]) == first
    (tree / "deep/__pycache__").mkdir()
    (tree / "deep/__pycache__/x.pyc").write_text("b")
    assert content.content_hash([tree]) == first
    assert content.content_hash([tree], ["bookworm"]) != first
    (tree / "deep/file").chmod(0o755)
    executable = content.content_hash([tree])
    assert executable != first
    (tree / "deep/file").write_text("b")
    assert content.content_hash([tree]) != executable


def test_lock_is_taken_once_and_given_up_with_its_process(tmp_path, monkeypatch):
    path = tmp_path / "lab/lock"
    other = subprocess.Popen(["sleep", "60"])
    try:
        monkeypatch.setattr(lock, "playbook_process", lambda: other.pid)
        assert lock.take(path) is True
        assert lock.take(path) is False
        monkeypatch.setattr(lock, "playbook_process", os.getpid)
        monkeypatch.setattr(lock, "WAIT_S", 0.2)
        monkeypatch.setattr(lock, "POLL_S", 0.05)
        with pytest.raises(lock.LockError, match=f"process {other.pid}"):
            lock.take(path)
    finally:
        other.kill()
        other.wait()
    assert lock.take(path) is True


def test_lock_does_not_trust_a_reused_process_id(tmp_path):
    path = tmp_path / "lock"
    path.write_text(f"{os.getpid()} 1\n")  # this process did not start one tick after boot
    assert lock.take(path) is True


def test_room_raises_and_never_lowers(tmp_path):
    for setting, value in (("fs/inotify/max_user_instances", 128), ("fs/inotify/max_user_watches", 999999999)):
        (tmp_path / setting).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / setting).write_text(f"{value}\n")
    raised = room.make(16, tmp_path)
    assert raised == {"fs.inotify.max_user_instances": (128, 384)}
    assert (tmp_path / "fs/inotify/max_user_instances").read_text() == "384\n"
    assert room.make(4, tmp_path) == {}


def test_room_that_cannot_be_made_is_explained(tmp_path, monkeypatch):
    (tmp_path / "fs/inotify").mkdir(parents=True)
    for name in ("max_user_instances", "max_user_watches"):
        (tmp_path / "fs/inotify" / name).write_text("1\n")

    def refuse(self, text):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(type(tmp_path), "write_text", refuse)
    with pytest.raises(room.RoomError, match=r"4 nodes need fs\.inotify\.max_user_instances=192, it is 1"):
        room.make(4, tmp_path)


@pytest.fixture
def repository(tmp_path):
    debian = tmp_path / "repository/www/debian"
    debian.mkdir(parents=True)
    (debian / "lab-debian.gpg").write_bytes(b"key")
    return tmp_path / "repository"


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
def test_seed_gives_every_node_its_keys_and_keeps_them(tmp_path, repository):
    described = rack()
    directory = tmp_path / "lab"
    assert seed.write(described, directory, repository) is True
    known = (directory / "ssh/known_hosts").read_text()
    assert seed.write(described, directory, repository) is False
    assert (directory / "ssh/known_hosts").read_text() == known
    assert [line.split()[0] for line in known.splitlines()] == ["10.89.250.11", "10.89.250.12"]
    root = directory / "nodes/gpu-02/root"
    host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[1]
    assert host_key == known.splitlines()[1].split()[2]
    assert (root / "root/.ssh/authorized_keys").read_text() == (directory / "ssh/id_ed25519.pub").read_text()
    assert (root / "etc/ssh/ssh_host_ed25519_key").stat().st_mode & 0o077 == 0
    assert "Address=10.89.250.12/24" in (root / "etc/systemd/network/10-eth0.network").read_text()
    assert "10.89.250.11\tgpu-01" in (root / "etc/hosts").read_text()
    assert "http://10.89.250.1:8080/debian" in (root / "etc/apt/sources.list.d/debian.sources").read_text()
    assert json.loads((directory / "nodes/gpu-02/node.json").read_text())["nics"][0]["name"] == "eth0"


def boot(directory, name: str, identifier: str) -> None:
    (directory / "nodes" / name).mkdir(parents=True, exist_ok=True)
    (directory / "nodes" / name / "boot").write_text(identifier + "\n")


@pytest.fixture
def plugger(tmp_path, monkeypatch):
    (tmp_path / "rack.json").write_text(json.dumps(rack()))
    plugged, pids = [], {"unit-gpu-01": 41, "unit-gpu-02": 0}
    monkeypatch.setattr(daemon.engine, "pid_of", lambda engine, container: pids[container])
    monkeypatch.setattr(daemon.cables, "plug", lambda rack, index, pid: plugged.append((index, pid)))
    pulled = []
    monkeypatch.setattr(daemon.cables, "switch_carrier", lambda rack, name, nics, up: pulled.append((name, nics, up)))
    watcher = daemon.Plugger(tmp_path)
    return watcher, tmp_path, plugged, pulled, pids


def test_each_boot_is_plugged_in_once(plugger):
    watcher, directory, plugged, _pulled, _pids = plugger
    watcher.step()
    assert plugged == []
    boot(directory, "gpu-01", "one")
    watcher.step()
    watcher.step()
    assert plugged == [(0, 41)]
    boot(directory, "gpu-01", "two")
    watcher.step()
    assert plugged == [(0, 41), (0, 41)]


def test_a_node_that_is_off_is_asked_for_a_few_times_only(plugger):
    watcher, directory, plugged, _pulled, pids = plugger
    boot(directory, "gpu-02", "old")
    for _ in range(daemon.PLUG_TRIES + 3):
        watcher.step()
    assert plugged == []
    pids["unit-gpu-02"] = 42
    watcher.step()
    assert plugged == []
    boot(directory, "gpu-02", "new")
    watcher.step()
    assert plugged == [(1, 42)]


def test_a_pulled_cable_stays_pulled_over_a_boot(plugger):
    watcher, directory, _plugged, pulled, _pids = plugger
    boot(directory, "gpu-01", "one")
    (directory / "nodes/gpu-01" / daemon.UNPLUGGED).write_text('["r1"]')
    watcher.step()
    assert pulled == [("gpu-01", ["r1"], False)]


def test_packages_are_served_and_nothing_beside_them(tmp_path):
    (tmp_path / "www").mkdir()
    (tmp_path / "www/Packages").write_text("Package: a\n")
    (tmp_path / "secret").write_text("s")
    server = daemon.serve_packages("127.0.0.1", 0, tmp_path / "www")
    try:
        base = f"http://127.0.0.1:{server.server_address[1]}"
        assert urllib.request.urlopen(f"{base}/Packages", timeout=5).read() == b"Package: a\n"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{base}/../secret", timeout=5)
    finally:
        server.shutdown()
        server.server_close()


def test_a_foreign_process_is_not_taken_for_the_daemon(tmp_path):
    assert daemon.running_pid(tmp_path) == 0
    (tmp_path / "daemon.pid").write_text(f"{os.getpid()}\n")
    assert daemon.running_pid(tmp_path) == 0


def test_errors_of_the_command_are_one_line(tmp_path):
    argv = [
        sys.executable,
        "-B",
        "-m",
        "lab_rack",
        "describe",
        "--dir",
        str(tmp_path),
        "--nodes",
        "99",
        "--profile",
        "x",
        "--engine",
        "podman",
        "--image",
        "i",
        "--subnet",
        "198.51.100.0/24",
    ]
    done = subprocess.run(argv, cwd=hardware.LAB, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "lab_nodes is 99; a lab rack has 1 to 64 nodes.\n"
    assert not (tmp_path / "rack.json").exists()


def test_only_what_no_rack_uses_is_forgotten(tmp_path, monkeypatch):
    for kind in ("images", "repositories"):
        for name in ("old", "one", "two"):
            (tmp_path / kind / name).mkdir(parents=True)
    for directory, name in ((tmp_path, "one"), (tmp_path / "racks/second", "two")):
        directory.mkdir(parents=True, exist_ok=True)
        described = {**rack(), "image": f"localhost/railyard-lab:{name}"}
        (directory / "rack.json").write_text(json.dumps(described))
        (directory / "www").symlink_to(tmp_path / "repositories" / name / "www")
    (tmp_path / "images/busy").mkdir()
    asked = []

    def run(argv, env=None, timeout=60):
        asked.append(argv[1:])
        return subprocess.CompletedProcess(argv, int(argv[1] == "rmi" and argv[2].endswith("busy")), "", "")

    monkeypatch.setattr(prune.engine, "run", run)
    prune.prune(tmp_path, "podman")
    assert sorted(path.name for path in (tmp_path / "repositories").iterdir()) == ["one", "two"]
    # What a container still uses is asked for again next time; images of other checkouts are not asked for.
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["busy", "one", "two"]
    assert [argv[1] for argv in asked if argv[0] == "rmi"] == [f"localhost/railyard-lab:{n}" for n in ("busy", "old")]


def test_a_rack_that_is_not_described_has_no_containers(tmp_path, monkeypatch, capsys):
    asked = []

    def run(argv, env=None, timeout=60):
        asked.append(argv)
        return subprocess.CompletedProcess(argv, 0, "1f", "")

    monkeypatch.setattr(engine, "run", run)
    monkeypatch.setattr(sys, "argv", ["lab_rack", "containers", "--dir", str(tmp_path), "--engine", "podman"])
    assert program.main() == 0
    assert json.loads(capsys.readouterr().out)["present"] == [] and asked == []
    with pytest.raises(engine.EngineError, match="without a name"):
        engine.containers_of("podman", "")
