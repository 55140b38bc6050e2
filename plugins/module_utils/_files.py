# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""A set of files brought to the wanted content and attributes: all of them, or none."""

from __future__ import annotations

import os
import tempfile
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import (
    MARK,
    Attributes,
    Failure,
    Folders,
    StateFile,
    attributes_of,
    gid_of,
    make_directories,
    no_file,
    read_text,
    remove,
    uid_of,
    write_atomic,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

PRESENT = "content"
DIRECTORY = "directory"
ABSENT = "absent"
#: Removed as well, and remembered: a file of somebody else that is in the way.
DISPLACED = "displaced"
ORIGINAL = "original"
#: A link that itself comes and goes; every other link is followed.
LINK = "link"
ORIGINAL_LINK = "original link"


class Wanted(t.NamedTuple):
    """One entry of the set, as the user gave it. The content of a link is where it leads."""

    path: str
    kind: str = PRESENT
    content: str = ""
    owner: str | None = None
    group: str | None = None
    mode: int | None = None
    validate: tuple[str, ...] = ()


def ours(path: str, text: str | None, mode: int = 0o644) -> Wanted:
    """A file of the system that only root writes and all read; without ``text``, what was there before it."""
    if text is None:
        return Wanted(path, ORIGINAL)
    return Wanted(path, PRESENT, text, owner=str(os.geteuid()), group=str(os.getegid()), mode=mode)


def our_link(path: str, target: str | None) -> Wanted:
    """A link of the system; without ``target``, what was there before it."""
    return Wanted(path, ORIGINAL_LINK) if target is None else Wanted(path, LINK, target)


class Step(t.NamedTuple):
    """What is done to one path. ``content`` of ``None`` in a file's step: it is removed.

    Of a ``link`` that itself comes or goes, ``before`` and ``content`` are where it leads; every other link is
    followed, and stays.
    """

    path: str
    before: str | None
    content: str | None
    before_attributes: Attributes | None
    attributes: Attributes | None
    directory: bool = False
    validate: tuple[str, ...] = ()
    link: bool = False
    displaced: bool = False

    @property
    def rewrites(self) -> bool:
        return self.before != self.content if not self.directory else self.before_attributes is None


def parse_mode(text: str | None, path: str) -> int | None:
    if text is None:
        return None
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise Failure(f"{path}: mode must be octal digits such as '0644', not {text!r}")
    return mode


def wanted_from(entry: t.Mapping[str, t.Any]) -> Wanted:
    """Check one entry of the module's ``files``."""
    path = entry["path"]
    if not os.path.isabs(path) or path.endswith("/"):
        raise Failure(f"{path!r} is not the absolute path of a file or directory")
    kinds = {
        PRESENT: entry.get("content") is not None,
        DIRECTORY: bool(entry.get("directory")),
        ABSENT: bool(entry.get("absent")),
        ORIGINAL: bool(entry.get("original")),
    }
    asked = [kind for kind, given in kinds.items() if given]
    if len(asked) != 1:
        raise Failure(
            f"{path}: give exactly one of content, directory, absent and original, not {' and '.join(asked) or 'none'}"
        )
    validate = tuple(entry.get("validate") or ())
    if validate and not any("%s" in word for word in validate):
        raise Failure(f"{path}: validate has no '%s' for the file's name: {list(validate)}")
    return Wanted(
        path=os.path.normpath(path),
        kind=asked[0],
        content=entry.get("content") or "",
        owner=entry.get("owner"),
        group=entry.get("group"),
        mode=parse_mode(entry.get("mode"), path),
        validate=validate,
    )


class FileSet:
    """Read, compare, validate, write, read back.

    ``known`` are first contents that an earlier version kept elsewhere, or not at all, in the shape of the record.
    """

    def __init__(
        self,
        wanted: t.Sequence[Wanted],
        cli: Cli,
        state: StateFile,
        check_mode: bool,
        known: t.Mapping[str, t.Any] | None = None,
    ) -> None:
        paths = [item.path for item in wanted]
        twice = sorted({path for path in paths if paths.count(path) > 1})
        if twice:
            raise Failure(f"These paths are given more than once: {', '.join(twice)}")
        self._wanted = wanted
        self._cli = cli
        self._state = state
        self._check_mode = check_mode
        self._originals = {**(known or {}), **state.load()}
        self._earlier = dict(self._originals)
        self._done: list[Step] = []
        self._folders = Folders(os.path.dirname(state.path))
        self.changes = ChangeSet()
        self.changed_paths: list[str] = []
        self.warnings: list[str] = []

    def plan(self) -> list[Step]:
        """Compare every path with what is wanted, and validate the contents that would be written."""
        steps = []
        for item in self._wanted:
            step = self._step(item)
            changed = self._note(step)
            if changed:
                self.changed_paths.append(step.path)
                steps.append(step)
        self._validate(steps)
        return steps

    def apply(self, steps: t.Sequence[Step]) -> None:
        """Make ``steps``; where one fails, those before it are taken back."""
        self._remember(steps)
        try:
            for step in steps:
                self._done.append(step)
                if step.content is not None:
                    self._folders.remember(step.path)
                _apply(step)
                _read_back(step)
        except Failure as exc:
            raise Failure(f"{str(exc).rstrip('.')}. {self.undo()}") from exc
        self.settle()

    def keep(self) -> None:
        """Have what is known from elsewhere in the record, before it is forgotten there."""
        if self._originals != self._state.load():
            self._state.save(self._originals)

    def undo(self) -> str:
        """Take back what :meth:`apply` did, as where what the files are for fails; returns a sentence about it."""
        left = []
        for step in reversed(self._done):
            try:
                if step.before is not None:
                    self._folders.remember(step.path)
                _undo(step)
            except (Failure, OSError) as exc:
                left.append(f"{step.path}: {exc}")
        self._done = []
        self._originals = self._earlier
        if left:
            return f"Not every file is as it was before: {'; '.join(left)}"
        self._state.save(self._earlier)
        self._folders.prune()
        return "Every file of this call is as it was before"

    def settle(self) -> None:
        """Keep no record of what is as it was before, even where somebody else has brought that about."""
        self._forget()
        self._folders.prune()

    def _step(self, item: Wanted) -> Step:
        if item.kind in (LINK, ORIGINAL_LINK) or (item.kind == ABSENT and os.path.islink(item.path)):
            return self._link_step(item)
        before_attributes = attributes_of(item.path)
        if item.kind == DIRECTORY:
            if before_attributes is not None and not os.path.isdir(item.path):
                raise Failure(f"{item.path}: a directory is wanted, but a file of that name is there")
            attributes = self._attributes(item, before_attributes, 0o755)
            return Step(item.path, None, None, before_attributes, attributes, directory=True)
        if item.kind == PRESENT:
            obstacle = no_file(item.path)
            if obstacle is not None:
                raise Failure(f"{item.path}: {obstacle}")
        if os.path.isdir(item.path):
            # Removed: what the user put into a directory of ours keeps it.
            keep = item.kind == ORIGINAL or bool(os.listdir(item.path))
            return Step(item.path, None, None, before_attributes, before_attributes if keep else None, directory=True)
        before = read_text(item.path)
        if item.kind == PRESENT:
            attributes = self._attributes(item, before_attributes, 0o644)
            return Step(item.path, before, item.content, before_attributes, attributes, validate=item.validate)
        saved = self._originals.get(item.path) if item.kind == ORIGINAL else None
        if item.kind == ORIGINAL and item.path not in self._originals and not _is_ours(before):
            # Never written by this module: what is there is the original.
            return Step(item.path, before, before, before_attributes, before_attributes)
        if saved is None:
            return Step(item.path, before, None, before_attributes, None, displaced=item.kind == DISPLACED)
        return Step(item.path, before, saved["content"], before_attributes, Attributes(*saved["attributes"]))

    def _link_step(self, item: Wanted) -> Step:
        before = _target(item.path)
        if before is None and os.path.lexists(item.path) and item.kind == LINK:
            raise Failure(f"{item.path}: a link to {item.content} is wanted, but something else of that name is there")
        after: str | None = item.content if item.kind == LINK else None
        if item.kind == ORIGINAL_LINK:
            saved = self._originals.get(item.path)
            after = saved["link"] if saved else None if self._is_our_link(item.path, before) else before
        return Step(item.path, before, after, None, None, link=True)

    def _is_our_link(self, path: str, target: str | None) -> bool:
        """Whether a link was made by this collection, should the record be lost: it leads to a file that it wrote.

        Not so where somebody else had a file there before: then the link, too, was there already.
        """
        if target is None:
            return False
        file = os.path.normpath(os.path.join(os.path.dirname(path), target))
        return self._originals.get(file) is None and _is_ours(read_text(file) if os.path.isfile(file) else None)

    def _attributes(self, item: Wanted, before: Attributes | None, default_mode: int) -> Attributes:
        base = before or Attributes(os.geteuid(), os.getegid(), default_mode)
        return Attributes(
            base.uid if item.owner is None else self._id(item, uid_of, item.owner),
            base.gid if item.group is None else self._id(item, gid_of, item.group),
            base.mode if item.mode is None else item.mode,
        )

    def _id(self, item: Wanted, lookup: t.Callable[[str], int], name: str) -> int:
        try:
            return lookup(name)
        except Failure as exc:
            # In check mode an earlier task may be the one that makes the user: all we know is that it differs.
            if not self._check_mode:
                raise Failure(f"{item.path}: {exc}") from exc
            return -1

    def _note(self, step: Step) -> bool:
        if step.directory:
            return self.changes.compare(
                step.path,
                step.before_attributes and f"directory {step.before_attributes}",
                step.attributes and f"directory {step.attributes}",
            )
        if step.link:
            return self.changes.compare(
                step.path, step.before and f"link to {step.before}", step.content and f"link to {step.content}"
            )
        content = self.changes.compare(step.path, step.before, step.content)
        if step.before_attributes is None or step.attributes is None:
            return content
        attributes = self.changes.compare(
            f"{step.path} (owner, mode)", str(step.before_attributes), str(step.attributes)
        )
        return content or attributes

    def _validate(self, steps: t.Sequence[Step]) -> None:
        refused = []
        for step in steps:
            if not step.validate or step.content is None or not step.rewrites:
                continue
            if self._check_mode and self._cli.which(step.validate[0]) is None:
                self.warnings.append(f"{step.path} is not validated: {step.validate[0]} is not installed yet")
                continue
            with tempfile.TemporaryDirectory(prefix="gpu-fabric-") as directory:
                # The file's own name: tools that go by the suffix see the right one.
                candidate = os.path.join(directory, os.path.basename(step.path))
                write_atomic(candidate, step.content, mode=0o600)
                argv = [word.replace("%s", candidate) for word in step.validate]
                result = self._cli.run(argv, check=False)
            if result.rc != 0:
                said = (result.stderr.strip() or result.stdout.strip() or "no message").replace(candidate, step.path)
                refused.append(f"{step.path}: {step.validate[0]} refuses it (status {result.rc}): {said}")
        if refused:
            raise Failure("Nothing was written. " + "; ".join(refused))

    def _remember(self, steps: t.Sequence[Step]) -> None:
        """Keep what a path held before this module wrote it for the first time."""
        originals = dict(self._originals)
        for step in steps:
            if step.directory or step.path in originals or (step.content is None and not step.displaced):
                continue
            if step.link:
                originals[step.path] = {"link": None if self._is_our_link(step.path, step.before) else step.before}
                continue
            originals[step.path] = (
                None
                if step.before is None or step.before_attributes is None or _is_ours(step.before)
                else {"content": step.before, "attributes": list(step.before_attributes)}
            )
        self._state.save(originals)
        self._originals = originals

    def _forget(self) -> None:
        gone = {item.path for item in self._wanted if item.kind in (ABSENT, ORIGINAL, ORIGINAL_LINK)}
        kept = {path: saved for path, saved in self._originals.items() if path not in gone}
        if kept != self._state.load():
            self._state.save(kept)


def _is_ours(text: str | None) -> bool:
    """Whether a file was written by this collection, should the record of that be lost."""
    return text is not None and MARK in text


def _target(path: str) -> str | None:
    """Where a link leads; ``None`` where there is no link."""
    return os.readlink(path) if os.path.islink(path) else None


def _lead(path: str, target: str | None) -> None:
    """Have ``path`` be a link to ``target``, or no link; at no moment is it neither the old one nor the new one."""
    if target is None:
        remove(path)
        return
    make_directories(os.path.dirname(path))
    try:
        with tempfile.TemporaryDirectory(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path)) as beside:
            os.symlink(target, os.path.join(beside, "link"))
            os.replace(os.path.join(beside, "link"), path)
    except OSError as exc:
        raise Failure(f"Cannot make {path} a link to {target}: {exc.strerror}") from exc


def _remove(step: Step) -> None:
    remove(step.path if step.directory else os.path.realpath(step.path))


def _apply(step: Step) -> None:
    if step.link:
        _lead(step.path, step.content)
    elif step.attributes is None or (step.content is None and not step.directory):
        _remove(step)
    elif step.directory:
        make_directories(step.path)
        _give(step.path, step.attributes)
    elif step.rewrites:
        write_atomic(step.path, step.content or "", *_mode_first(step.attributes))
    else:
        _give(step.path, step.attributes)


def _give(path: str, attributes: Attributes) -> None:
    try:
        os.chown(path, attributes.uid, attributes.gid)
        os.chmod(path, attributes.mode)
    except OSError as exc:
        raise Failure(f"Cannot give {path} to {attributes}: {exc.strerror}") from exc


def _read_back(step: Step) -> None:
    if step.link:
        if _target(step.path) != step.content:
            raise Failure(f"{step.path} leads to {_target(step.path)} after it was made to lead to {step.content}")
        return
    found = attributes_of(step.path)
    if found != step.attributes:
        raise Failure(f"{step.path} is {found or 'absent'} after it was set to {step.attributes or 'absent'}")
    if not step.directory and read_text(step.path) != step.content:
        raise Failure(f"{step.path} reads back otherwise than it was written")


def _undo(step: Step) -> None:
    if step.link:
        _lead(step.path, step.before)
    elif step.before_attributes is None:
        _remove(step)
    elif step.directory:
        make_directories(step.path)
        _give(step.path, step.before_attributes)
    elif step.before is not None:
        write_atomic(step.path, step.before, *_mode_first(step.before_attributes))


def _mode_first(attributes: Attributes) -> tuple[int, int, int]:
    return attributes.mode, attributes.uid, attributes.gid


__all__ = ("FileSet", "Step", "Wanted", "our_link", "ours", "parse_mode", "wanted_from")
