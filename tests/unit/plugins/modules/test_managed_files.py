# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _files, _io
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import FileSet, wanted_from
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile, write_atomic
from ansible_collections.railyard.gpu_fabric.plugins.modules import managed_files


class Host:
    def __init__(self, base: pathlib.Path) -> None:
        self.base = base
        self.etc = base / "etc"
        self.etc.mkdir()

    def plan(self, *entries: dict[str, t.Any], check_mode: bool = False) -> tuple[FileSet, list[_files.Step]]:
        located = [{**entry, "path": str(self.etc / entry["path"])} for entry in entries]
        files = FileSet(
            [wanted_from(entry) for entry in located],
            Cli(),
            StateFile("files.json", str(self.base / "state")),
            check_mode,
        )
        return files, files.plan()

    def apply(self, *entries: dict[str, t.Any]) -> FileSet:
        files, steps = self.plan(*entries)
        if steps:
            files.apply(steps)
        return files

    def tree(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.etc)): path.read_text(encoding="utf-8") if path.is_file() else "directory"
            for path in sorted(self.etc.rglob("*"))
        }


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


SET = (
    {"path": "limits.d/90.conf", "content": "* - memlock unlimited\n", "mode": "0640"},
    {"path": "drop-in", "directory": True},
    {"path": "old.conf", "absent": True},
)


def test_a_set_is_brought_about_once(host: Host) -> None:
    (host.etc / "old.conf").write_text("old\n")
    foretold, _steps = host.plan(*SET, check_mode=True)
    assert host.tree() == {"old.conf": "old\n"}
    done = host.apply(*SET)
    assert host.tree() == {
        "drop-in": "directory",
        "limits.d": "directory",
        "limits.d/90.conf": "* - memlock unlimited\n",
    }
    assert stat.S_IMODE((host.etc / "limits.d/90.conf").stat().st_mode) == 0o640
    assert done.changes.diff() == foretold.changes.diff()
    assert done.changed_paths == [str(host.etc / entry["path"]) for entry in SET]
    assert not host.apply(*SET).changed_paths


def test_only_what_differs_is_named(host: Host) -> None:
    host.apply(*SET)
    (host.etc / "limits.d/90.conf").write_text("by hand\n")
    files = host.apply(*SET)
    assert files.changed_paths == [str(host.etc / "limits.d/90.conf")]
    assert files.changes.diff()[0]["before"] == "by hand\n"


def test_mode_alone_is_a_change(host: Host) -> None:
    host.apply(*SET)
    path = host.etc / "limits.d/90.conf"
    path.chmod(0o600)
    inode = path.stat().st_ino
    files = host.apply(*SET)
    assert files.changed_paths == [str(path)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino == inode
    assert files.changes.diff()[0]["before"].endswith("0600\n")


def test_an_existing_file_keeps_its_mode(host: Host) -> None:
    path = host.etc / "secret"
    path.write_text("old\n")
    path.chmod(0o600)
    host.apply({"path": "secret", "content": "new\n"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_is_written_when_one_is_refused(host: Host) -> None:
    refuse = ["sh", "-c", 'grep -q good "$1" || { echo "line 1: not good" >&2; exit 3; }', "sh", "%s"]
    with pytest.raises(Failure, match=r"Nothing was written\. .*b\.conf: sh refuses it \(status 3\): line 1: not good"):
        host.apply(
            {"path": "a.conf", "content": "good\n", "validate": refuse},
            {"path": "b.conf", "content": "bad\n", "validate": refuse},
        )
    assert host.tree() == {}


def test_validation_sees_the_files_name(host: Host) -> None:
    host.apply(
        {
            "path": "x.nft",
            "content": "y\n",
            "validate": ["sh", "-c", 'case "$1" in */x.nft) ;; *) exit 1;; esac', "sh", "%s"],
        }
    )
    assert host.tree() == {"x.nft": "y\n"}


def test_a_validator_that_is_not_there_yet(host: Host) -> None:
    entry = {"path": "x", "content": "y\n", "validate": ["no-such-tool-here", "%s"]}
    files, steps = host.plan(entry, check_mode=True)
    assert steps and "no-such-tool-here is not installed yet" in files.warnings[0]
    with pytest.raises(Failure, match="there is no such command on this host"):
        host.apply(entry)
    assert host.tree() == {}


def test_what_was_written_is_taken_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.etc / "a").write_text("before\n")
    real = _files.write_atomic

    def failing(path: str, *args: t.Any) -> None:
        if path.endswith("/c"):
            raise Failure(f"Cannot write {path}: No space left on device")
        real(path, *args)

    monkeypatch.setattr(_files, "write_atomic", failing)
    with pytest.raises(Failure, match=r"No space left on device\. Every file of this call is as it was before"):
        host.apply(*({"path": name, "content": "after\n"} for name in "abc"))
    assert host.tree() == {"a": "before\n"}


def test_the_original_comes_back(host: Host) -> None:
    path = host.etc / "nccl.conf"
    path.write_text("NCCL_DEBUG=WARN\n")
    path.chmod(0o600)
    for text in ("first\n", "second\n"):
        host.apply({"path": "nccl.conf", "content": text, "mode": "0644"}, {"path": "new", "content": text})
    host.apply({"path": "nccl.conf", "original": True}, {"path": "new", "original": True})
    assert host.tree() == {"nccl.conf": "NCCL_DEBUG=WARN\n"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not host.apply({"path": "nccl.conf", "original": True}).changed_paths
    assert not (host.base / "state/files.json").exists()


def test_a_file_never_written_is_its_own_original(host: Host) -> None:
    (host.etc / "theirs").write_text("theirs\n")
    assert not host.apply({"path": "theirs", "original": True}).changed_paths
    assert host.tree() == {"theirs": "theirs\n"}


def test_bytes_that_are_no_text_survive(host: Host) -> None:
    (host.etc / "f").write_bytes(b"caf\xe9\n")
    host.apply({"path": "f", "content": "x\n"})
    host.apply({"path": "f", "original": True})
    assert (host.etc / "f").read_bytes() == b"caf\xe9\n"


def test_a_link_is_followed(host: Host) -> None:
    (host.etc / "real").write_text("old\n")
    (host.etc / "link").symlink_to("real")
    host.apply({"path": "link", "content": "new\n"})
    assert (host.etc / "link").is_symlink()
    assert (host.etc / "real").read_text() == "new\n"


def test_a_directory_in_use_stays(host: Host) -> None:
    host.apply({"path": "drop-in", "directory": True})
    (host.etc / "drop-in/theirs").write_text("x")
    assert not host.apply({"path": "drop-in", "absent": True}).changed_paths
    assert "drop-in/theirs" in host.tree()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"path": "x"}, "exactly one of content, directory, absent and original, not none"),
        ({"path": "x", "content": "", "absent": True}, "not content and absent"),
        ({"path": "x", "content": "", "mode": "u+x"}, "mode must be octal digits such as '0644', not 'u\\+x'"),
        ({"path": "x", "content": "", "validate": ["true"]}, "validate has no '%s'"),
        ({"path": "x", "content": "", "owner": "nobody-of-that-name"}, "There is no user 'nobody-of-that-name'"),
    ],
)
def test_bad_entries_are_refused(host: Host, entry: dict[str, t.Any], message: str) -> None:
    with pytest.raises(Failure, match=message):
        host.apply(entry)
    assert host.tree() == {}


def test_relative_and_repeated_paths_are_refused(host: Host) -> None:
    with pytest.raises(Failure, match="'x/y' is not the absolute path"):
        wanted_from({"path": "x/y", "content": ""})
    with pytest.raises(Failure, match="given more than once"):
        host.apply({"path": "x", "content": "a"}, {"path": "./x", "content": "b"})


def test_a_user_who_comes_with_a_package_is_a_change_in_check_mode(host: Host) -> None:
    (host.etc / "x").write_text("same\n")
    _found, steps = host.plan({"path": "x", "content": "same\n", "owner": "nobody-of-that-name"}, check_mode=True)
    assert [os.path.basename(step.path) for step in steps] == ["x"]


def call(host: Host, name: str, *entries: dict[str, t.Any]) -> FileSet:
    """One call of the module with a name, as its main() makes it."""
    sets = StateFile("file_sets.json", str(host.base / "state"))
    wanted = [wanted_from({**entry, "path": str(host.etc / entry["path"])}) for entry in entries]
    wanted += managed_files.left_behind(sets.load().get(name, []), wanted)
    files = FileSet(wanted, Cli(), StateFile("files.json", str(host.base / "state")), False)
    steps = files.plan()
    files.apply(steps) if steps else files.settle()
    managed_files.remember(sets, name, wanted)
    return files


def test_a_file_that_moves_takes_the_old_one_along(host: Host) -> None:
    (host.etc / "nccl.conf").write_text("NCCL_DEBUG=INFO\n")
    before = host.tree()
    call(host, "nccl", {"path": "nccl.conf", "content": "A=1\n"})
    call(host, "cuda", {"path": "cuda.sh", "content": "B=1\n"})
    moved = call(host, "nccl", {"path": "site/nccl.conf", "content": "A=1\n"})
    assert sorted(os.path.relpath(path, host.etc) for path in moved.changed_paths) == ["nccl.conf", "site/nccl.conf"]
    assert host.tree() == {**before, "cuda.sh": "B=1\n", "site": "directory", "site/nccl.conf": "A=1\n"}
    assert call(host, "nccl", {"path": "site/nccl.conf", "content": "A=1\n"}).changed_paths == []
    call(host, "nccl", {"path": "nccl.conf", "content": "A=1\n"})
    assert host.tree() == {"nccl.conf": "A=1\n", "cuda.sh": "B=1\n"}
    call(host, "nccl")
    call(host, "cuda", {"path": "cuda.sh", "original": True})
    assert host.tree() == before
    assert not (host.base / "state").exists()


def test_directories_that_were_made_go_with_their_last_file(host: Host) -> None:
    (host.etc / "kept").mkdir()
    files = [{"path": f"made/deep/{name}", "content": "x\n"} for name in "ab"]
    host.apply(*files, {"path": "kept/c", "content": "x\n"})
    host.apply({"path": "made/deep/a", "original": True}, {"path": "kept/c", "original": True})
    assert host.tree() == {"kept": "directory", "made": "directory", "made/deep": "directory", "made/deep/b": "x\n"}
    (host.etc / "made" / "theirs").write_text("y\n")
    host.apply({"path": "made/deep/b", "original": True})
    assert host.tree() == {"kept": "directory", "made": "directory", "made/theirs": "y\n"}


def test_what_somebody_else_has_put_back_leaves_no_record(host: Host) -> None:
    call(host, "nccl", {"path": "nccl.conf", "content": "A=1\n"})
    (host.etc / "nccl.conf").unlink()
    assert call(host, "nccl", {"path": "nccl.conf", "original": True}).changed_paths == []
    assert not (host.base / "state").exists()


def test_a_link_to_a_device_is_never_replaced(host: Host) -> None:
    device = host.etc / "device"
    os.mknod(device, stat.S_IFSOCK | 0o600)
    (host.etc / "masked.service").symlink_to("device")
    entries = ({"path": "before", "content": "x\n"}, {"path": "masked.service", "content": "[Unit]\n"})
    with pytest.raises(Failure, match=r"a file is wanted, but it is a link to .*/device, a device.*Remove it"):
        host.apply(*entries)
    assert not (host.etc / "before").exists() and stat.S_ISSOCK(device.stat().st_mode)
    with pytest.raises(Failure, match=r"Cannot write .*masked\.service"):
        write_atomic(str(host.etc / "masked.service"), "x")
    assert stat.S_ISSOCK(device.stat().st_mode)


def test_a_link_that_leads_nowhere_stays_and_its_file_goes_again(host: Host) -> None:
    (host.etc / "link").symlink_to("real")
    host.apply({"path": "link", "content": "new\n"})
    assert (host.etc / "real").read_text() == "new\n"
    host.apply({"path": "link", "original": True})
    assert (host.etc / "link").is_symlink() and not (host.etc / "real").exists()
    assert host.apply({"path": "link", "absent": True}).changed_paths
    assert not (host.etc / "link").is_symlink()


def test_a_link_that_goes_comes_back_where_a_later_file_fails(host: Host) -> None:
    (host.etc / "full").mkdir()
    (host.etc / "full/x").touch()
    (host.etc / "link").symlink_to("full")
    with pytest.raises(Failure, match="Every file of this call is as it was before"):
        host.apply({"path": "link", "absent": True}, {"path": "full/x/y", "content": "a"})
    assert (host.etc / "link").readlink() == pathlib.Path("full") and (host.etc / "full/x").is_file()


def test_what_failed_leaves_no_record_behind(host: Host) -> None:
    (host.etc / "a").write_text("first\n")
    (host.etc / "file").touch()
    with pytest.raises(
        Failure, match=r"Cannot make the directory .*file/x.*Every file of this call is as it was before"
    ):
        host.apply({"path": "a", "content": "ours\n"}, {"path": "file/x/y", "content": "ours\n"})
    assert [path.name for path in host.base.rglob("state/*")] == []
    (host.etc / "a").write_text("by hand since\n")
    host.apply({"path": "a", "content": "ours\n"})
    host.apply({"path": "a", "original": True})
    assert (host.etc / "a").read_text() == "by hand since\n"


def test_one_that_cannot_be_taken_back_is_named_and_the_others_are(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _files.write_atomic
    for name in "ab":
        (host.etc / name).write_text("first\n")

    def full(path: str, content: str, *rest: t.Any) -> None:
        if path.endswith("/c") or (path.endswith("/b") and content == "first\n"):
            raise Failure(f"Cannot write {path}: No space left on device")
        real(path, content, *rest)

    monkeypatch.setattr(_files, "write_atomic", full)
    with pytest.raises(Failure, match=r"/c: No space left.*Not every file is as it was before: .*/b: Cannot write"):
        host.apply(*({"path": name, "content": "ours\n"} for name in "abc"))
    assert (host.etc / "a").read_text() == "first\n"
    monkeypatch.undo()
    host.apply({"path": "b", "original": True})
    assert (host.etc / "b").read_text() == "first\n", "the record stays for it"


def test_a_file_of_ours_without_a_record_goes_and_is_nobodys_original(host: Host) -> None:
    ours = "# Managed by railyard.gpu_fabric: changes made here are overwritten.\n"
    (host.etc / "lost").write_text(ours + "a\n")
    host.apply({"path": "lost", "content": ours + "b\n"})
    host.apply({"path": "lost", "original": True})
    assert host.tree() == {}
    (host.etc / "lost").write_text(ours)
    host.apply({"path": "lost", "original": True})
    assert host.tree() == {}


def test_an_empty_directory_of_others_is_nobodys_original(host: Host) -> None:
    (host.etc / "theirs").mkdir()
    assert not host.apply({"path": "theirs", "original": True}).changed_paths
    assert host.tree() == {"theirs": "directory"}


def test_directories_can_be_looked_into_whatever_the_umask(host: Host) -> None:
    mask = os.umask(0o077)
    try:
        host.apply({"path": "a/b/c", "content": "x\n"}, {"path": "d/e", "directory": True})
    finally:
        os.umask(mask)
    for name in ("a", "a/b", "d", "d/e"):
        assert stat.S_IMODE((host.etc / name).stat().st_mode) == 0o755, name


def test_labels_of_a_file_stay(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, bytes] = {}
    monkeypatch.setattr(_io.os, "getxattr", lambda path, name: b"etc_t" if name == "security.selinux" else _none())
    monkeypatch.setattr(_io.os, "setxattr", lambda path, name, value: given.update({name: value}))
    (host.etc / "a").write_text("x\n")
    host.apply({"path": "a", "content": "y\n"})
    assert given == {"security.selinux": b"etc_t"} and host.tree() == {"a": "y\n"}


def _none() -> bytes:
    raise OSError(95, "Operation not supported")


def test_why_the_kernel_refuses_comes_with_where_to_look(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.etc / "a").write_text("x\n")

    real = os.replace

    def refuse(source: str, target: str) -> None:
        if target.endswith("/a"):
            raise PermissionError(1, "Operation not permitted")
        real(source, target)

    monkeypatch.setattr(_io.os, "replace", refuse)
    with pytest.raises(Failure, match=r"Cannot write .*/a: Operation not permitted; it may be immutable.*lsattr"):
        host.apply({"path": "a", "content": "y\n"})
    assert host.tree() == {"a": "x\n"}


@pytest.mark.parametrize("name", sorted(_io.MEMBERS))
@pytest.mark.parametrize("member", [5, "x"])
def test_a_record_that_somebody_edited_is_named_with_the_remedy(
    tmp_path: pathlib.Path, name: str, member: object
) -> None:
    (tmp_path / name).write_text(f'{{"gpu-fabric": {json.dumps(member)}}}')
    with pytest.raises(Failure, match=rf"Cannot read {tmp_path / name}: gpu-fabric is .*Mend it, or remove the file"):
        StateFile(name, str(tmp_path)).load()
