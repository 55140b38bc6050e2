# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""package_set against the real apt and dpkg, on a root directory and signed repositories of its own."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import threading
import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _files, _locks
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._apt import ENVIRONMENT, Apt
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._package_set import PackageSet
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._packages import Pin, Repository, Request, checked

NEEDED = ("apt-get", "apt-mark", "dpkg", "dpkg-deb", "gpg", "gpgv")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}, which this machine does not have")

DRIVER = "gpu-fabric-driver"


class Key:
    """A throw-away signing key."""

    def __init__(self, home: pathlib.Path, name: str) -> None:
        home.mkdir(mode=0o700)
        self._gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
        subprocess.run(
            [*self._gpg, "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never"], check=True
        )
        self.armoured = subprocess.run(
            [*self._gpg, "--export", "--armor"], check=True, capture_output=True, text=True
        ).stdout
        listing = subprocess.run(
            [*self._gpg, "--list-keys", "--with-colons"], check=True, capture_output=True, text=True
        ).stdout
        self.fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr"))

    def sign(self, release: pathlib.Path) -> None:
        signed = release.with_name("InRelease")
        signed.unlink(missing_ok=True)
        subprocess.run([*self._gpg, "--clearsign", "--output", str(signed), str(release)], check=True)


class World:
    """A host's root directory, a distribution's repository and a vendor's."""

    def __init__(self, base: pathlib.Path, key: Key) -> None:
        self.base = base
        self.key = key
        self.releases = 0
        self.root = base / "root"
        for name in (
            "etc/apt/sources.list.d",
            "etc/apt/preferences.d",
            "etc/apt/apt.conf.d",
            "etc/apt/keyrings",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/log/apt",
        ):
            (self.root / name).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        configuration = base / "apt.conf"
        configuration.write_text(
            f'Dir "{self.root}/";\nDir::State::status "{self.root}/var/lib/dpkg/status";\nAPT::Sandbox::User "root";\n'
            'APT::Architecture "amd64";\nAPT::Architectures "amd64";\nAcquire::Languages "none";\n'
            f'DPkg::Options {{ "--root={self.root}"; "--force-script-chrootless"; "--force-not-root"; '
            f'"--force-bad-path"; "--log={base}/dpkg.log"; }};\nDPkg::Use-Pty "false";\n'
        )
        self.environ = {
            **ENVIRONMENT,
            "APT_CONFIG": str(configuration),
            "no_proxy": "127.0.0.1",
            "DPKG_ADMINDIR": str(self.root / "var/lib/dpkg"),
        }
        self.vendor = base / "vendor"
        self.distribution = base / "distribution"
        for repository in (self.vendor, self.distribution):
            repository.mkdir()
            self.publish(repository)
        self.cli = Cli(self.environ)
        self.run("dpkg", "--add-architecture", "amd64", check=False)
        keyring = self.root / "etc/apt/keyrings/distribution.asc"
        keyring.write_text(key.armoured)
        (self.root / "etc/apt/sources.list").write_text(f"deb [signed-by={keyring}] file:{self.distribution} ./\n")

    def run(self, *argv: str, check: bool = True) -> str:
        environ = {**os.environ, **self.environ}
        return subprocess.run(argv, env=environ, check=check, capture_output=True, text=True).stdout

    def package(self, repository: pathlib.Path, name: str, version: str, **fields: str) -> None:
        tree = self.base / "build" / f"{name}_{version}"
        (tree / "DEBIAN").mkdir(parents=True)
        control = {"Package": name, "Version": version, "Architecture": "all", "Maintainer": "Rack <rack@example.com>"}
        control |= {field.replace("_", "-"): value for field, value in fields.items()} | {"Description": "for a test"}
        (tree / "DEBIAN/control").write_text("".join(f"{field}: {value}\n" for field, value in control.items()))
        target = repository / f"{name}_{version.replace(':', '%3a')}_all.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", str(tree), str(target)], check=True, stdout=-3)
        self.publish(repository)

    def publish(self, repository: pathlib.Path, key: Key | None = None) -> None:
        stanzas = []
        for deb in sorted(repository.glob("*.deb")):
            control = subprocess.run(["dpkg-deb", "-f", str(deb)], check=True, capture_output=True, text=True).stdout
            digest = hashlib.sha256(deb.read_bytes()).hexdigest()
            stanzas.append(f"{control}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n")
        index = "\n".join(stanzas).encode()
        (repository / "Packages").write_bytes(index)
        (repository / "Release").write_text(
            "Origin: test\nSuite: test\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n"
            f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n"
        )
        (key or self.key).sign(repository / "Release")
        # HTTP knows whole seconds only, and two releases of a test may share one.
        self.releases += 1
        os.utime(repository / "InRelease", (self.releases * 60, self.releases * 60))

    # The module, as its main() drives it

    def request(self, packages: dict[str, str], **more: t.Any) -> Request:
        repository = more.pop("repository", self.repository())
        return checked(Request(name=more.pop("name", DRIVER), packages=packages, repository=repository, **more))

    def repository(self, **more: t.Any) -> Repository:
        usual = {"name": "vendor", "url": f"file:{self.vendor}", "suite": "./", "key": self.key.armoured}
        usual["key_fingerprints"] = (self.key.fingerprint,)
        return Repository(**{**usual, **more})

    def plan(self, request: Request, absent: bool = False, lock_timeout_s: float = 5) -> PackageSet:
        self.cli = Cli(self.environ)
        apt = Apt(self.cli, root=str(self.root), lock_timeout_s=lock_timeout_s)
        return PackageSet(request, apt, StateFile("packages.json", str(self.base / "state")), absent=absent)

    def apply(self, request: Request, absent: bool = False) -> PackageSet:
        todo = self.plan(request, absent)
        if len(todo.changes):
            todo.apply()
        return todo

    def versions(self) -> dict[str, str]:
        found = {}
        for line in self.run("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\\n").splitlines():
            name, version, status = line.split()
            if status[1] == "i":
                found[name] = version + (" held" if status[0] == "h" else "")
        return found

    def snapshot(self) -> dict[str, bytes]:
        """Everything on the host that a person would call its state."""
        ignored = ("var/cache", "var/log", "var/lib/apt/lists/lock", "var/lib/dpkg/lock")
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not str(path.relative_to(self.root)).startswith(ignored)
        }


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("gpg") / "home", "The vendor <vendor@example.com>")


@pytest.fixture(scope="session")
def other_key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("gpg") / "other", "Somebody else <else@example.com>")


@pytest.fixture
def world(tmp_path: pathlib.Path, key: Key) -> World:
    made = World(tmp_path, key)
    for version in ("570.1.1-1", "580.2.2-1", "580.2.2-2", "590.3.3-1"):
        made.package(made.vendor, "libnvidia-ml1", version)
        made.package(made.vendor, "nvidia-open", version, Depends=f"libnvidia-ml1 (>= {version}), dkms-lite")
    made.package(made.vendor, "nvidia-fabricmanager", "580.2.2-1")
    made.package(made.distribution, "dkms-lite", "3.0")
    return made


PINS = (Pin(("nvidia-*", "libnvidia-*"), "580.2.2*"),)


def wanted(world: World, version: str = "580.2.2", **more: t.Any) -> Request:
    pins = (Pin(("nvidia-*", "libnvidia-*"), f"{version}*"),)
    return world.request({"nvidia-open": version}, pins=pins, hold=True, **more)


def test_what_is_foretold_is_what_happens(world: World) -> None:
    before = world.snapshot()
    foretold = world.plan(wanted(world))
    assert world.snapshot() == before
    assert [move._asdict() for move in foretold.moves] == [
        {"name": "dkms-lite", "before": None, "after": "3.0"},
        {"name": "libnvidia-ml1", "before": None, "after": "580.2.2-2"},
        {"name": "nvidia-open", "before": None, "after": "580.2.2-2"},
    ]
    done = world.apply(wanted(world))
    assert done.changes.diff() == foretold.changes.diff()
    assert world.versions() == {
        "dkms-lite": "3.0",
        "libnvidia-ml1": "580.2.2-2 held",
        "nvidia-open": "580.2.2-2 held",
    }


def test_second_run_is_one_query(world: World) -> None:
    world.apply(wanted(world))
    again = world.plan(wanted(world))
    assert not len(again.changes)
    assert [command.split()[0] for command in world.cli.ran] == ["dpkg-query"]


def test_files_hold_the_set_together(world: World) -> None:
    world.apply(wanted(world))
    etc = world.root / "etc/apt"
    source = (etc / "sources.list.d/vendor.sources").read_text()
    assert f"URIs: file:{world.vendor}\nSuites: ./\nSigned-By: {world.root}/etc/apt/keyrings/vendor.gpg\n" in source
    assert "Trusted" not in source
    assert "Package: nvidia-* libnvidia-*\nPin: version 580.2.2*\n" in (etc / f"preferences.d/{DRIVER}").read_text()
    unattended = (etc / f"apt.conf.d/52{DRIVER}-unattended").read_text()
    assert 'Package-Blacklist:: "^libnvidia-.*$";' in unattended
    # apt itself can read what was written.
    assert "^libnvidia-.*$" in world.run("apt-config", "dump", "Unattended-Upgrade")


def test_a_new_version_in_the_intent_moves_what_we_hold(world: World) -> None:
    world.apply(wanted(world, "570.1.1"))
    # A new release in the repository moves nothing by itself.
    world.package(world.vendor, "nvidia-open", "570.1.1-9", Depends="libnvidia-ml1")
    assert not len(world.plan(wanted(world, "570.1.1")).changes)
    world.run("apt-get", "update")
    world.run("apt-get", "--yes", "dist-upgrade")
    assert world.versions()["nvidia-open"] == "570.1.1-1 held"
    foretold = world.plan(wanted(world))
    done = world.apply(wanted(world))
    assert done.changes.diff() == foretold.changes.diff()
    assert world.versions()["nvidia-open"] == "580.2.2-2 held"
    assert world.versions()["libnvidia-ml1"] == "580.2.2-2 held"


def test_down_to_an_older_version_when_asked(world: World) -> None:
    world.apply(wanted(world))
    world.apply(wanted(world, "570.1.1"))
    assert world.versions()["nvidia-open"] == "570.1.1-1 held"


@pytest.fixture
def served(world: World) -> t.Iterator[Repository]:
    """The vendor's repository over HTTP: apt reads that of a file: source in place, without an index of its own."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: t.Any) -> None:
            pass

    handler = functools.partial(Handler, directory=str(world.vendor))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield world.repository(url=f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()


def test_index_is_fetched_when_it_lacks_the_version(world: World, served: Repository) -> None:
    world.apply(wanted(world, repository=served))
    world.package(world.vendor, "libnvidia-ml1", "600.1.1-1")
    world.package(world.vendor, "nvidia-open", "600.1.1-1", Depends="libnvidia-ml1 (= 600.1.1-1)")
    world.apply(wanted(world, "600.1.1", repository=served))
    assert world.versions()["nvidia-open"] == "600.1.1-1 held"
    updates = [command for command in world.cli.ran if " update " in command and "cache" not in command]
    assert len(updates) == 1
    assert "sourcelist=" in updates[0] and "sourceparts=/dev/null" in updates[0]


def test_somebody_elses_hold_is_refused(world: World) -> None:
    world.apply(world.request({"nvidia-open": "570.1.1"}, name="by-hand", pins=(Pin(("libnvidia-*",), "570*"),)))
    world.run("apt-mark", "hold", "nvidia-open")
    before = world.snapshot()
    with pytest.raises(Failure, match=r"nvidia-open 570\S+ → 580\S+ it is held.*apt-mark unhold nvidia-open"):
        world.apply(wanted(world))
    assert world.snapshot() == before


def test_another_kernel_is_refused(world: World) -> None:
    world.package(world.vendor, "linux-image-6.99", "6.99-1")
    world.package(world.vendor, "nvidia-extra", "580.2.2-1", Depends="linux-image-6.99")
    before = world.snapshot()
    with pytest.raises(Failure, match=r"linux-image-6\.99 absent → 6\.99-1: .*may not change the kernel"):
        world.apply(world.request({"nvidia-extra": "580.2.2"}))
    assert world.snapshot() == before


def test_removing_what_nobody_named_is_refused(world: World) -> None:
    world.package(world.distribution, "rdma-plain", "1")
    world.run("apt-get", "update")
    world.run("apt-get", "--yes", "install", "rdma-plain")
    world.package(world.vendor, "doca-like", "3", Conflicts="rdma-plain")
    with pytest.raises(Failure, match=r"rdma-plain 1 → removed: nothing asks for its removal"):
        world.apply(world.request({"doca-like": ""}))
    world.apply(world.request({"doca-like": ""}, remove=("rdma-*",)))
    assert world.versions() == {"doca-like": "3"}


def test_any_version_stays(world: World) -> None:
    world.apply(world.request({"nvidia-open": "570.1.1"}, pins=(Pin(("libnvidia-*",), "570*"),)))
    assert not world.plan(world.request({"nvidia-open": ""}, name="other")).moves


def test_stale_entries_go_and_come_back(world: World) -> None:
    stale = world.root / "etc/apt/sources.list.d/cuda.list"
    stale.write_text(f"# by hand\ndeb [trusted=yes] file:{world.vendor}/ ./\n")
    shared = world.root / "etc/apt/sources.list.d/site.sources"
    other = f"Types: deb\nURIs: file:{world.distribution}\nSuites: ./\nSigned-By: /etc/apt/keyrings/distribution.asc\n"
    vendor = f"Types: deb\nURIs: file:{world.vendor}\nSuites: ./\nTrusted: yes\n"
    mixed = f"{vendor}\n{other}".replace("/etc", f"{world.root}/etc")
    shared.write_text(mixed)
    todo = world.apply(wanted(world))
    assert "/etc/apt/sources.list.d/cuda.list" in todo.changed_paths
    assert not stale.exists()
    assert str(world.vendor) not in shared.read_text() and str(world.distribution) in shared.read_text()
    world.apply(wanted(world), absent=True)
    assert "trusted=yes" in stale.read_text()
    assert shared.read_text() == mixed


def foreign(world: World) -> dict[str, bytes]:
    """Somebody else's files under every name that a set writes."""
    etc = world.root / "etc/apt"
    (etc / f"preferences.d/{DRIVER}").write_text("Package: site-*\nPin: version 1*\nPin-Priority: 600\n")
    (etc / f"apt.conf.d/52{DRIVER}-unattended").write_text('Unattended-Upgrade::Mail "root";\n')
    source = f"deb [signed-by={etc}/keyrings/distribution.asc] file:{world.distribution} ./\n"
    (etc / "sources.list.d/vendor.sources").write_text(
        f"Types: deb\nURIs: file:{world.distribution}\nSuites: ./\nSigned-By: {etc}/keyrings/distribution.asc\n"
    )
    (etc / "sources.list").write_text(f"# site\n{source}")
    (etc / "keyrings/vendor.gpg").write_bytes(b"\x99\x00\xffsomebody's\xfe")
    (etc / "keyrings/vendor.gpg").chmod(0o600)
    return {path: data for path, data in world.snapshot().items() if path.startswith("etc/")}


def test_files_of_somebody_else_are_kept_and_given_back(world: World) -> None:
    before = foreign(world)
    foretold = world.plan(wanted(world))
    done = world.apply(wanted(world))
    assert done.changes.diff() == foretold.changes.diff() and len(done.changed_paths) == 4
    assert "(owner, mode)" in str(done.changes.subjects)
    keys = [change for change in done.changes if change.subject == "/etc/apt/keyrings/vendor.gpg"]
    assert (
        len(keys) == 1 and keys[0].before.startswith("unusable") and keys[0].after == f"key {world.key.fingerprint}\n"
    )
    assert "Managed by" in (world.root / "etc/apt/sources.list.d/vendor.sources").read_text()
    # the first contents are those of the very first run
    world.apply(wanted(world, "570.1.1"))
    nothing = world.request({}, repository=None)
    foretold = world.plan(nothing, absent=True)
    done = world.apply(nothing, absent=True)
    assert done.changes.diff() == foretold.changes.diff()
    assert {path: data for path, data in world.snapshot().items() if path.startswith("etc/")} == before
    assert (world.root / "etc/apt/keyrings/vendor.gpg").stat().st_mode & 0o777 == 0o600
    assert not (world.base / "state").exists() and not len(world.plan(nothing, absent=True).changes)


@pytest.mark.parametrize("after", [0, 2, 4])
def test_first_contents_outlive_a_run_that_was_cut_off(
    world: World, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Killed after so many files of the four, or before the packages."""
    before = foreign(world)
    real, left = _files._apply, [after]

    def apply(step: _files.Step) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(step)

    def install(*_args: t.Any, **_kwargs: t.Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_files, "_apply", apply)
        patch.setattr(Apt, "install", install)
        with pytest.raises(KeyboardInterrupt):
            world.apply(wanted(world))
    nothing = world.request({}, repository=None)
    left[0] = 1
    if after:
        with monkeypatch.context() as patch:
            patch.setattr(_files, "_apply", apply)
            with pytest.raises(KeyboardInterrupt):
                world.apply(nothing, absent=True)
    todo = world.plan(nothing, absent=True)
    if len(todo.changes):
        todo.apply()
    else:
        todo.settle()
    assert {path: data for path, data in world.snapshot().items() if path.startswith("etc/")} == before
    assert not (world.base / "state").exists()


def test_a_displaced_entry_comes_back_with_the_last_set_of_its_source(world: World) -> None:
    stale = world.root / "etc/apt/sources.list.d/cuda.list"
    stale.write_text(f"deb [trusted=yes] file:{world.vendor}/ ./\n")
    world.apply(wanted(world))
    other = world.request({"nvidia-fabricmanager": "580.2.2"}, name="gpu-fabric-cuda")
    world.apply(other)
    world.apply(wanted(world), absent=True)
    assert not stale.exists()
    world.apply(other, absent=True)
    assert "trusted=yes" in stale.read_text() and not (world.base / "state").exists()


@pytest.mark.parametrize("first_a_run", [True, False])
def test_what_an_earlier_version_kept_comes_back(world: World, first_a_run: bool) -> None:
    """It had displaced entries in its own record, and none of what it wrote."""
    stale = world.root / "etc/apt/sources.list.d/cuda.list"
    stale.write_text(f"deb [trusted=yes] file:{world.vendor}/ ./\n")
    before = {path: data for path, data in world.snapshot().items() if path.startswith("etc/")}
    world.apply(wanted(world))
    record = world.base / "state/packages.json"
    held = json.loads(record.read_text())
    text = before["etc/apt/sources.list.d/cuda.list"].decode()
    held[DRIVER]["stale"] = {"/etc/apt/sources.list.d/cuda.list": text}
    record.write_text(json.dumps(held))
    (world.base / "state/files.json").unlink()
    if first_a_run:
        world.apply(wanted(world, "570.1.1"))
    nothing = world.request({}, repository=None)
    world.apply(nothing, absent=True)
    assert {path: data for path, data in world.snapshot().items() if path.startswith("etc/")} == before
    assert not (world.base / "state").exists()


def test_a_key_that_was_renewed_is_written(world: World) -> None:
    world.apply(wanted(world))
    keyring = world.root / "etc/apt/keyrings/vendor.gpg"
    data = keyring.read_bytes()
    # the same key twice, as after a signature was added: its fingerprint says nothing of that
    keyring.write_bytes(data + data)
    todo = world.apply(wanted(world))
    assert todo.changes.subjects == ["/etc/apt/keyrings/vendor.gpg"] and keyring.read_bytes() == data


def test_absent_takes_back_what_was_brought(world: World) -> None:
    world.run("apt-get", "update")
    world.run("apt-get", "--yes", "install", "dkms-lite")
    before = {path: text for path, text in world.snapshot().items() if path.startswith("etc/")}
    world.apply(wanted(world))
    # The name is enough: the record says what there is to take back.
    nothing = world.request({}, repository=None)
    foretold = world.plan(nothing, absent=True)
    done = world.apply(nothing, absent=True)
    assert done.changes.diff() == foretold.changes.diff()
    assert "/etc/apt/sources.list.d/vendor.sources" in done.changed_paths
    assert world.versions() == {"dkms-lite": "3.0"}
    assert {path: text for path, text in world.snapshot().items() if path.startswith("etc/")} == before
    assert not len(world.plan(nothing, absent=True).changes)


NOTHING: dict[str, t.Any] = {}


def test_absent_takes_dependencies_indexes_and_its_own_record_along(world: World) -> None:
    world.run("apt-get", "update")
    before = world.snapshot()
    world.apply(wanted(world))
    assert "dkms-lite" in world.versions()
    foretold = world.plan(world.request(NOTHING, repository=None), absent=True)
    assert {move.name for move in foretold.moves} == {"nvidia-open", "libnvidia-ml1", "dkms-lite"}
    world.apply(world.request(NOTHING, repository=None), absent=True)
    assert world.versions() == {}
    assert not (world.base / "state").exists() or os.listdir(world.base / "state") == []
    lists = [path for path in world.snapshot() if path.startswith("var/lib/apt/lists/")]
    assert lists == [path for path in before if path.startswith("var/lib/apt/lists/")]


def test_a_dependency_that_somebody_else_came_to_need_stays(world: World) -> None:
    world.package(world.distribution, "site-tool", "1.0", Depends="dkms-lite")
    world.apply(wanted(world))
    world.run("apt-get", "update")
    world.run("apt-get", "--yes", "install", "site-tool")
    world.apply(world.request(NOTHING, repository=None), absent=True)
    assert set(world.versions()) == {"dkms-lite", "site-tool"}
    assert not len(world.plan(world.request(NOTHING, repository=None), absent=True).changes)


def test_a_dependency_that_another_set_needs_goes_with_that_set(world: World) -> None:
    world.package(world.vendor, "nvidia-tool", "580.2.2-1", Depends="dkms-lite")
    world.apply(wanted(world))
    other = world.request({"nvidia-tool": "580.2.2"}, name="gpu-fabric-cuda")
    world.apply(other)
    world.apply(world.request(NOTHING, repository=None), absent=True)
    assert set(world.versions()) == {"dkms-lite", "nvidia-tool"}
    world.apply(world.request(NOTHING, repository=None, name="gpu-fabric-cuda"), absent=True)
    assert world.versions() == {}


def test_a_hold_of_somebody_else_stays(world: World) -> None:
    world.run("apt-get", "update")
    world.run("apt-get", "--yes", "install", "dkms-lite")
    world.run("apt-mark", "hold", "dkms-lite")
    world.apply(world.request({"dkms-lite": "3.0", "nvidia-fabricmanager": ""}, hold=True))
    assert set(world.run("apt-mark", "showhold").split()) == {"dkms-lite", "nvidia-fabricmanager"}
    world.apply(world.request({"dkms-lite": "3.0", "nvidia-fabricmanager": ""}, hold=True))
    world.apply(world.request(NOTHING, repository=None), absent=True)
    assert world.run("apt-mark", "showhold").split() == ["dkms-lite"]
    assert set(world.versions()) == {"dkms-lite"}


def test_a_shared_source_goes_with_the_last_set(world: World) -> None:
    world.apply(wanted(world))
    other = world.request({"nvidia-fabricmanager": "580.2.2"}, name="gpu-fabric-cuda")
    world.apply(other)
    world.apply(wanted(world), absent=True)
    assert (world.root / "etc/apt/sources.list.d/vendor.sources").exists()
    world.apply(other, absent=True)
    assert not (world.root / "etc/apt/sources.list.d/vendor.sources").exists()


@pytest.mark.parametrize("pin", ["580.2.2", "580.2.2-2", "580.*"])
def test_spellings_of_a_version(world: World, pin: str) -> None:
    world.apply(world.request({"libnvidia-ml1": pin}))
    assert world.versions()["libnvidia-ml1"] == "580.2.2-2"


def test_a_version_that_is_nowhere(world: World) -> None:
    before = world.snapshot()
    with pytest.raises(Failure, match=r"nvidia-open 999\.1: the sources have 590\.3\.3-1, 580\.2\.2-2"):
        world.apply(world.request({"nvidia-open": "999.1"}))
    assert world.snapshot() == before


def test_wrong_fingerprint_is_refused(world: World, other_key: Key) -> None:
    repository = world.repository(key_fingerprints=(other_key.fingerprint,))
    before = world.snapshot()
    with pytest.raises(Failure, match=f"is {world.key.fingerprint}, not {other_key.fingerprint}"):
        world.apply(wanted(world, repository=repository))
    assert world.snapshot() == before


def test_a_repository_signed_by_another_key_is_refused_in_apts_words(world: World, other_key: Key) -> None:
    world.publish(world.vendor, other_key)
    before = world.snapshot()
    with pytest.raises(Failure, match=f"NO_PUBKEY {other_key.fingerprint[-16:]}"):
        world.apply(wanted(world))
    assert world.snapshot() == before


def test_an_unreachable_repository_is_refused(world: World) -> None:
    before = world.snapshot()
    with pytest.raises(Failure, match=r"apt cannot fetch the package indexes: .*nonexistent"):
        world.apply(wanted(world, repository=world.repository(url="file:/nonexistent/mirror")))
    assert world.snapshot() == before


def test_lock_holder_is_named(world: World) -> None:
    lock = world.root / "var/lib/dpkg/lock-frontend"
    lock.touch()
    script = textwrap.dedent(
        f"""
        import fcntl, sys
        handle = open({str(lock)!r}, "w")
        fcntl.lockf(handle, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        todo = world.plan(wanted(world), lock_timeout_s=0.2)
        with pytest.raises(Failure, match=rf"frontend is held by process {holder.pid} \(\S*python.*lock_timeout_s"):
            todo.apply()
        holder.stdin.close()
    world.apply(wanted(world))
    assert "nvidia-open" in world.versions()


def test_lock_is_waited_for(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        found = _locks.holder(str(path))
        assert found is not None and found.pid in (os.getpid(), 0)
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds
            if now[0] > 3:
                fcntl.flock(handle, fcntl.LOCK_UN)

        _locks.wait_for([str(path)], 60, clock=lambda: now[0], sleep=sleep)
        assert 3 < now[0] < 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": None}, "exactly one of key, key_url and key_file is needed, not none"),
        ({"key_file": "/x"}, "exactly one of key, key_url and key_file is needed, not key, key_file"),
        ({"url": "ftp://x"}, r"repository\.url: 'ftp://x' must begin with"),
        ({"key_fingerprints": ("",)}, r"key_fingerprints: '' is no fingerprint"),
        ({"key_fingerprints": ("A4B469963BF863CC",)}, r"'A4B469963BF863CC' is no fingerprint"),
        ({"name": "a b"}, r"repository\.name: 'a b' must be"),
        ({"key": None, "key_url": "http://x/k", "key_fingerprints": ()}, "not https, so key_fingerprints is needed"),
    ],
)
def test_bad_repositories_are_refused(world: World, change: dict[str, t.Any], message: str) -> None:
    with pytest.raises(Failure, match=message):
        world.request({"nvidia-open": ""}, repository=world.repository(**change))


def test_a_source_with_another_name_takes_the_earlier_one_along(world: World) -> None:
    sources, keys = world.root / "etc/apt/sources.list.d", world.root / "etc/apt/keyrings"
    world.apply(wanted(world))
    world.apply(wanted(world, repository=world.repository(name="mirror")))
    assert sorted(path.name for path in sources.iterdir()) == ["mirror.sources"]
    assert sorted(path.name for path in keys.iterdir()) == ["distribution.asc", "mirror.gpg"]
    assert not len(world.plan(wanted(world, repository=world.repository(name="mirror"))).changes)
