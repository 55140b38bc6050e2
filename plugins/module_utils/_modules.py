# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Kernel modules: loaded now, loaded at boot, kept out, and their options."""

from __future__ import annotations

import os
import re
import shlex
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import FileSet, ours
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile, conf_files, read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

_HEADER = "# Managed by railyard.gpu_fabric: changes made here are overwritten.\n"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
#: Where modprobe and systemd-modules-load look, in the order of precedence.
PROBE_DIRECTORIES = (
    "/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d",
)  # fmt: skip


def checked_name(name: str) -> str:
    """A module's name as the kernel spells it."""
    if not _NAME.fullmatch(name):
        raise Failure(f"{name!r} is no kernel module's name, such as nvidia_peermem")
    return name.replace("-", "_")


def checked_options(name: str, text: t.Any) -> str:
    """The options of a module on one line."""
    try:
        words = shlex.split(text) if isinstance(text, str) else []
    except ValueError:
        words = []
    if not words or not text.isprintable():
        raise Failure(f"options of {name}: {text!r} is not NAME=VALUE, with a blank between two of them")
    return " ".join(text.split())


def render_load(load: t.Sequence[str]) -> str | None:
    return _HEADER + "".join(f"{name}\n" for name in load) if load else None


def checked_follow(follow: t.Mapping[str, t.Any]) -> dict[str, list[str]]:
    """Modules by the one after which they come."""
    for name, followers in follow.items():
        if not (isinstance(followers, list) and followers and all(isinstance(item, str) for item in followers)):
            raise Failure(f"follow of {name}: {followers!r} is no list of modules, such as [nvidia_peermem]")
    return {checked_name(name): list(map(checked_name, followers)) for name, followers in follow.items()}


def render_modprobe(
    options: t.Mapping[str, str], blacklist: t.Sequence[str], follow: t.Mapping[str, t.Sequence[str]]
) -> str | None:
    if not options and not blacklist and not follow:
        return None
    lines = [f"options {name} {text}\n" for name, text in options.items()]
    # Holds for whoever loads the module, udev too, and takes the followers out before it.
    lines += [f"softdep {name} post: {' '.join(followers)}\n" for name, followers in follow.items()]
    for name in blacklist:
        lines.append(f"blacklist {name}\n")
        # A blacklist stops aliases only; this stops a dependency or a person, too.
        lines.append(f"install {name} /bin/false\n")
        if name == "nouveau":
            lines.append("options nouveau modeset=0\n")
    return _HEADER + "".join(lines)


class Running:
    """The modules of the running kernel."""

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def loaded(self) -> set[str]:
        """Names of the modules that are in the kernel, whether loaded or built in."""
        text = read_text(os.path.join(self._root, "proc/modules")) or ""
        names = {line.split()[0] for line in text.splitlines() if line.strip()}
        return names | {name for name in self._sys() if self._live(name)} | self.built_in()

    def needed_by(self, names: t.Collection[str]) -> set[str]:
        """These and all modules that they use, themselves or by others."""
        text = read_text(os.path.join(self._root, "proc/modules")) or ""
        # ib_core 450560 3 rdma_ucm,ib_uverbs, Live 0x0000000000000000
        users = {row[0]: set(row[3].split(",")) for line in text.splitlines() if len(row := line.split()) > 3}
        for name in self._sys():
            holders = os.path.join(self._root, "sys/module", name, "holders")
            users[name] = users.get(name, set()) | set(os.listdir(holders) if os.path.isdir(holders) else ())
        found = set(names)
        while more := {name for name, others in users.items() if others & found} - found:
            found |= more
        return found

    def built_in(self) -> set[str]:
        """What the kernel has in itself; of that, sysfs shows only modules with parameters."""
        text = read_text(os.path.join(self._root, "lib/modules", os.uname().release, "modules.builtin")) or ""
        return {os.path.basename(line).partition(".")[0].replace("-", "_") for line in text.split()}

    def _sys(self) -> list[str]:
        try:
            return os.listdir(os.path.join(self._root, "sys/module"))
        except OSError:
            return []

    def _live(self, name: str) -> bool:
        # A module proper has its state there (coming, live, going); what is built into the kernel has none.
        state = read_text(os.path.join(self._root, "sys/module", name, "initstate"))
        return state is None or state.strip() == "live"

    def parameter(self, module: str, parameter: str) -> str | None:
        text = read_text(os.path.join(self._root, "sys/module", module, "parameters", parameter))
        return None if text is None else text.strip()


def blacklisting(names: t.Collection[str], root: str = "/") -> list[str]:
    """Why modules would not be loaded at boot, a sentence each: there, a blacklist holds for names as for aliases."""
    found = []
    for path in conf_files(PROBE_DIRECTORIES, root):
        for line in (read_text(os.path.join(root, path.lstrip("/"))) or "").splitlines():
            words = line.split()
            if words[:1] == ["blacklist"] and len(words) > 1 and words[1].replace("-", "_") in names:
                found.append(f"{words[1]} would not be loaded at boot: {path} has {line.strip()!r}. Remove that line")
    return found


def differing_options(running: Running, module: str, text: str) -> list[str]:
    """Options whose value in the loaded module is another than the wanted one, where the module shows it."""
    found = []
    for word in shlex.split(text):
        name, given, value = word.partition("=")
        present = running.parameter(module, name) if given else None
        if present is not None and _truth(present) != _truth(value):
            found.append(f"{module} {name}: {present!r} is in force, {value!r} is wanted")
    return found


def _truth(value: str) -> str:
    return {"Y": "1", "N": "0", "y": "1", "n": "0"}.get(value, value)


def initramfs_command(root: str, release: str, which: t.Callable[[str], str | None]) -> list[str] | None:
    """What makes this kernel's initramfs anew; ``None`` where it boots without one, as a container does."""
    if os.path.exists(os.path.join(root, f"boot/initrd.img-{release}")) and which("update-initramfs"):
        return ["update-initramfs", "-u", "-k", "all"]
    if os.path.exists(os.path.join(root, f"boot/initramfs-{release}.img")) and which("dracut"):
        return ["dracut", "--force", "--regenerate-all"]
    return None


def gone(names: t.Sequence[str], packages: StateFile) -> list[str]:
    """The package sets of these that are not on the host any more."""
    recorded = packages.load()
    return [name for name in names if name not in recorded]


class Brought:
    """The modules that came into the kernel for sets of ours, by the sets' names: they go again with these."""

    def __init__(self, stems: t.Sequence[str], running: Running, cli: Cli, state: StateFile) -> None:
        self._stems, self._running, self._cli, self._state = stems, running, cli, state

    def present(self) -> list[str]:
        loaded, records = self._running.loaded(), self._state.load()
        return sorted({name for stem in self._stems for name in records.get(stem, ()) if name in loaded})

    def remember(self, came: t.Collection[str]) -> None:
        if came:
            records = self._state.load()
            stem = self._stems[0]
            self._state.save({**records, stem: sorted({*records.get(stem, ()), *came})})

    def give_back(self) -> list[str]:
        """Take them out of the kernel, users before used. What is in use stays, and the answer says so."""
        left, said = self.present(), ""
        progress = True
        while left and progress:
            progress = False
            for name in list(left):
                # Its package may be gone, and with it what modprobe would look into.
                result = self._cli.run(["rmmod", name], check=False)
                said = result.stderr.strip() or said
                if name not in self._running.loaded():
                    left.remove(name)
                    progress = True
        self._state.save({stem: names for stem, names in self._state.load().items() if stem not in self._stems})
        return [f"{', '.join(left)}: still in use, and loaded until the next boot ({said.rstrip('.')})"] if left else []


class Aside:
    """Loaded modules that are out of the kernel while something is done, and come back whatever becomes of it."""

    def __init__(self, names: t.Sequence[str], cli: Cli, running: Running) -> None:
        self._cli, self._running = cli, running
        loaded = running.loaded() - running.built_in()
        #: Users before used.
        self.names = [name for name in map(checked_name, names) if name in loaded]
        self._out: list[str] = []

    def __enter__(self) -> None:
        for name in self.names:
            try:
                unload(name, self._cli, self._running)
            except Failure as exc:
                back = self._come_back()
                raise Failure(
                    f"{str(exc).rstrip('.')}. End what uses it; nothing was restarted. {back}".strip()
                ) from exc
            self._out.append(name)

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: t.Any) -> None:
        back = self._come_back()
        if back:
            raise Failure(f"{str(exc).rstrip('.')}. {back}" if exc else back) from exc

    def _come_back(self) -> str:
        results = [self._cli.run(["modprobe", self._out.pop()], check=False) for _ in list(self._out)]
        return "; ".join(
            f"{result.argv[-1]} was unloaded and does not load again: {result.stderr.strip() or result.rc}"
            for result in results
            if result.rc != 0
        )


def unload(name: str, cli: Cli, running: Running) -> None:
    """Take one module out of the kernel, with what only it uses, and look that it is gone."""
    result = cli.run(["modprobe", "--remove", name], check=False)
    if result.rc != 0 or name in running.loaded():
        said = result.stderr.strip() or result.stdout.strip() or "it is still there"
        raise Failure(f"{name} cannot be unloaded: {said}")


class ModuleSet:
    """The wanted modules against the files and the running kernel."""

    def __init__(
        self,
        stem: str,
        load: t.Sequence[str],
        options: t.Mapping[str, str],
        blacklist: t.Sequence[str],
        now: bool,
        cli: Cli,
        originals: StateFile,
        initramfs: bool = False,
        reload: t.Sequence[str] = (),
        root: str = "/",
        state: StateFile | None = None,
        absent: bool = False,
        came_with: t.Sequence[str] = (),
        follow: t.Mapping[str, t.Any] | None = None,
    ) -> None:
        self._cli = cli
        self._running = Running(root)
        self._brought = Brought([stem, *came_with], self._running, cli, state) if state else None
        load = list(dict.fromkeys(checked_name(name) for name in load))
        self._blacklist = list(dict.fromkeys(checked_name(name) for name in blacklist))
        options = {checked_name(name): checked_options(name, text) for name, text in options.items()}
        both = sorted(set(load) & set(self._blacklist))
        if both:
            raise Failure(f"{', '.join(both)}: a module cannot both be loaded and be kept out")
        texts = {
            os.path.join(root, f"etc/modules-load.d/{stem}.conf"): render_load(load),
            os.path.join(root, f"etc/modprobe.d/{stem}.conf"): render_modprobe(
                options, self._blacklist, checked_follow(follow or {})
            ),
        }
        self._files = FileSet([ours(*item) for item in texts.items()], cli, originals, check_mode=False)
        self._steps = self._files.plan()
        self.changes: ChangeSet = self._files.changes
        self.changed_paths = self._files.changed_paths
        #: Why a module that is loaded now would not be at the next boot.
        self.barred = blacklisting(load, root)
        loaded = self._running.loaded()
        self._to_unload = [name for name in dict.fromkeys(map(checked_name, reload)) if name in loaded]
        staying = loaded - set(self._to_unload)
        self._to_load = [name for name in load if now and name not in staying]
        # Users of the module that were loaded by somebody else come back as well.
        self._to_load += [name for name in reversed(self._to_unload) if name not in self._to_load]
        for name in self._to_load:
            self.changes.compare(
                f"{name} (loaded)", name in self._to_unload, "anew" if name in self._to_unload else "yes"
            )
        #: What is in the kernel for this module's sake, and goes with the rest where nothing uses it.
        self.given_back = self._brought.present() if self._brought and absent else []
        for name in self.given_back:
            self.changes.compare(f"{name} (loaded)", "yes", None)
        #: Why some of it stays until the next boot.
        self.kept: list[str] = []
        self.initramfs = (
            initramfs_command(root, os.uname().release, cli.which) if initramfs and self.initramfs_required else None
        )
        self.changes.compare("initramfs", None, self.initramfs and " ".join(self.initramfs))
        self.intruders = [name for name in self._blacklist if name in loaded]
        self.reload_required = [
            sentence for name, text in options.items() for sentence in differing_options(self._running, name, text)
        ]

    @property
    def loaded(self) -> list[str]:
        """What is loaded by this call."""
        return list(self._to_load)

    @property
    def unloaded(self) -> list[str]:
        """What this call unloads, in this order."""
        return list(self._to_unload)

    @property
    def initramfs_required(self) -> bool:
        """Whether what keeps modules out changes: an initramfs has its own copy of it."""
        return any("/etc/modprobe.d/" in path for path in self.changed_paths)

    def apply(self) -> list[str]:
        """Write the files and load the modules; returns why modules did not load, one sentence each."""
        self._files.apply(self._steps)
        if self.initramfs is not None:
            try:
                self._cli.run(self.initramfs, timeout_s=1800)
            except Failure as exc:
                # Else the next run would find the files as wanted, and not make it.
                raise Failure(f"{str(exc).rstrip('.')}. {self._files.undo()}", **exc.details) from exc
        self._unload()
        if self.given_back and self._brought:
            self.kept = self._brought.give_back()
        failures = []
        for name in self._to_load:
            before = self._running.loaded()
            result = self._cli.run(["modprobe", name], check=False)
            if result.rc != 0:
                said = result.stderr.strip() or result.stdout.strip() or f"status {result.rc}"
                failures.append(f"{name} does not load: {said}")
            elif name not in self._running.loaded():
                failures.append(
                    f"{name} is not among the loaded modules although modprobe succeeded: it is an alias, or a line "
                    f"'install {name} …' in modprobe.d runs instead. Look at: modprobe --show-depends {name}"
                )
            if self._brought:
                # modprobe brings along what a module needs; what else comes meanwhile, as by udev, is somebody else's.
                came = self._running.loaded() - before
                self._brought.remember(came & self._running.needed_by([name]))
        return failures

    def _unload(self) -> None:
        for name in self._to_unload:
            try:
                unload(name, self._cli, self._running)
            except Failure as exc:
                raise Failure(
                    f"{str(exc).rstrip('.')}. End what uses it, or reboot the host: the files for the next boot are in"
                    " place."
                ) from exc


__all__ = (
    "Aside",
    "Brought",
    "ModuleSet",
    "Running",
    "blacklisting",
    "checked_name",
    "checked_options",
    "differing_options",
    "gone",
    "initramfs_command",
    "render_load",
    "render_modprobe",
)
