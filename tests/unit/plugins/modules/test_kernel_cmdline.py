# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's arguments: a drop-in that appends, boot entries of their own, and what this kernel was started with."""

from __future__ import annotations

import subprocess
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _cmdline
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cmdline import DROP_IN, CommandLine
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile

MENU = """\
menuentry 'Debian GNU/Linux' {{
\tlinux\t/boot/vmlinuz-6.1.0-28-amd64 root=UUID=5d ro {arguments}
\tinitrd\t/boot/initrd.img-6.1.0-28-amd64
}}
menuentry 'Debian GNU/Linux, (recovery mode)' {{
\tlinux\t/boot/vmlinuz-6.1.0-28-amd64 root=UUID=5d ro single
}}
"""


class Machine(Cli):
    """A host below a directory with GRUB's own way of reading its defaults, or with grubby."""

    def __init__(self, root: Path, *tools: str) -> None:
        super().__init__()
        self.root, self.tools = root, tools
        self.kernels = {"a": ["ro", "quiet"], "b": ["ro", "quiet"]}
        (root / "proc").mkdir(parents=True)
        self.boot("BOOT_IMAGE=/boot/vmlinuz root=UUID=5d ro quiet")
        if "update-grub" in tools:
            self.file("etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="console=ttyS0"\n')
            self.run(["update-grub"])
            self.ran.clear()

    def boot(self, line: str) -> None:
        (self.root / "proc/cmdline").write_text(line + "\n")

    def file(self, path: str, text: str | None = None) -> str | None:
        target = self.root / path.lstrip("/")
        if text is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return target.read_text() if target.exists() else None

    def which(self, name: str) -> str | None:
        return f"/usr/sbin/{name}" if name in self.tools else None

    def run(self, argv: t.Sequence[str], check: bool = True, **_: object) -> Result:
        self.ran.append(" ".join(argv))
        return Result(tuple(argv), 0, self.grubby(list(argv[1:])) if argv[0] == "grubby" else self.update_grub(), "")

    def update_grub(self) -> str:
        # as grub-mkconfig does it: a shell reads the defaults, then the drop-ins in the order of their names
        script = 'cd "$0"; . etc/default/grub; for f in etc/default/grub.d/*.cfg; do [ -e "$f" ] && . "./$f"; done; '
        script = script.replace(". etc", ". ./etc") + 'echo "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"'
        done = subprocess.run(["sh", "-c", script, str(self.root)], capture_output=True, text=True, check=True)
        self.file("boot/grub/grub.cfg", MENU.format(arguments=done.stdout.strip()))
        return ""

    def grubby(self, words: list[str]) -> str:
        if words == ["--info=ALL"]:
            rows = [
                f'index={n}\nkernel="/boot/{k}"\nargs="{" ".join(a)}"\n'
                for n, (k, a) in enumerate(self.kernels.items())
            ]
            return "".join(rows)
        for word in words[1:]:
            key, _, value = word.partition("=")
            for arguments in self.kernels.values():
                for token in value.split():
                    if key == "--remove-args" and token in arguments:
                        arguments.remove(token)
                if key == "--args":
                    # of one argument, only the values that it was told together
                    names = {token.partition("=")[0] for token in value.split()}
                    arguments[:] = [token for token in arguments if token.partition("=")[0] not in names]
                    arguments += value.split()
        return ""

    def line(self, *wanted: str) -> CommandLine:
        state, originals = (StateFile(f"{n}.json", str(self.root / "state")) for n in ("kernel_cmdline", "files"))
        return CommandLine(wanted, self, state, originals, str(self.root))

    def apply(self, *wanted: str) -> CommandLine:
        line = self.line(*wanted)
        if len(line.changes):
            line.apply()
        else:
            line.settle()
        return line


@pytest.fixture(params=["update-grub", "grubby"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path, request.param)


def next_boot(machine: Machine) -> list[list[str]]:
    if "grubby" in machine.tools:
        return list(machine.kernels.values())
    return _cmdline.grub_entries(machine.file("boot/grub/grub.cfg") or "")


def test_arguments_come_to_what_is_there_and_go_again(machine: Machine) -> None:
    before = [list(entry) for entry in next_boot(machine)]
    line = machine.apply("iommu=pt", "pci=realloc=off")
    assert all({"iommu=pt", "pci=realloc=off", "quiet"} <= set(entry) for entry in next_boot(machine))
    assert line.missing == ["iommu=pt", "pci=realloc=off"] and line.stale == []
    assert not len(machine.line("pci=realloc=off", "iommu=pt").changes)
    assert not len(machine.line("iommu=pt", "pci=realloc=off").changes)
    machine.boot("root=UUID=5d ro quiet pci=realloc=off iommu=pt")
    assert machine.line("iommu=pt", "pci=realloc=off").missing == [], "in any order"
    line = machine.apply()
    assert [sorted(entry) for entry in next_boot(machine)] == [sorted(entry) for entry in before]
    assert line.stale == ["iommu=pt", "pci=realloc=off"], "this kernel still has them"
    assert not len(machine.line().changes) and machine.file(DROP_IN) is None


def test_every_run_says_that_a_reboot_is_missing_until_there_was_one(machine: Machine) -> None:
    machine.apply("iommu=pt", "pci=noats", "never=booted")
    machine.boot("BOOT_IMAGE=/boot/vmlinuz ro quiet iommu=pt pci=noats panic=5")
    assert machine.line("iommu=pt").stale == ["pci=noats"], "foretold"
    assert machine.apply("iommu=pt").stale == ["pci=noats"]
    assert machine.apply("iommu=pt").stale == ["pci=noats"] and not len(machine.line("iommu=pt").changes)
    assert machine.line("iommu=pt", "pci=noats").stale == [], "wanted again"
    assert machine.apply().stale == ["pci=noats", "iommu=pt"]
    for _ in range(2):
        line = machine.apply()
        assert sorted(line.stale) == ["iommu=pt", "pci=noats"] and not len(line.changes)
    assert machine.line("never=booted").missing == ["never=booted"]
    machine.boot("BOOT_IMAGE=/boot/vmlinuz ro quiet pci=noats panic=5")
    assert machine.apply().stale == ["pci=noats"], "an older entry was booted"
    machine.boot("BOOT_IMAGE=/boot/vmlinuz ro quiet panic=5")
    assert machine.apply().stale == [] and not (machine.root / "state").exists()
    # whoever gives it now is none of ours
    machine.boot("BOOT_IMAGE=/boot/vmlinuz ro quiet pci=noats")
    assert machine.line().stale == []


def test_looking_forgets_nothing(machine: Machine) -> None:
    machine.boot("BOOT_IMAGE=/boot/vmlinuz ro quiet iommu=pt")
    machine.apply("iommu=pt")
    machine.apply()
    machine.boot("BOOT_IMAGE=/boot/vmlinuz ro quiet")
    machine.line()
    assert (machine.root / "state/kernel_cmdline.json").exists()


def test_an_argument_that_others_give_to_every_kernel_needs_no_reboot_to_go(machine: Machine) -> None:
    machine.apply("iommu=pt")
    machine.boot("BOOT_IMAGE=/boot/vmlinuz ro quiet iommu=pt")
    assert machine.apply().stale == ["iommu=pt"]
    for arguments in machine.kernels.values():
        arguments.append("iommu=pt")
    if "update-grub" in machine.tools:
        machine.file("etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"\n')
        machine.run(["update-grub"])
    assert machine.apply().stale == [] and not (machine.root / "state").exists()


def test_an_argument_that_another_loader_still_gives_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "update-grub")
    machine.apply("iommu=pt")
    machine.boot("root=/dev/vda ro iommu=pt")
    machine.apply()
    assert [text.partition("means, ")[2] for text in machine.line().doubts] == ["iommu=pt must be taken away there"]


def test_what_goes_is_known_after_a_run_that_was_cut_off(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.apply("iommu=pt")
    machine.boot("BOOT_IMAGE=/boot/vmlinuz ro quiet iommu=pt")

    def cut() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        line = machine.line()
        patch.setattr(line, "_verify", cut)
        line.apply()
    assert machine.apply().stale == ["iommu=pt"] and machine.apply().stale == ["iommu=pt"]


def test_only_what_was_added_is_taken_away(machine: Machine) -> None:
    for arguments in machine.kernels.values():
        arguments.append("iommu=pt")
    if "update-grub" in machine.tools:
        machine.file("etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"\n')
        machine.run(["update-grub"])
    assert not len(machine.line("iommu=pt").changes), "somebody else has set it"
    machine.apply("iommu=pt", "pci=noats")
    machine.apply()
    assert all("iommu=pt" in entry and "pci=noats" not in entry for entry in next_boot(machine))


def test_looking_changes_nothing(machine: Machine) -> None:
    before = [list(entry) for entry in next_boot(machine)]
    assert len(machine.line("iommu=pt").changes) == 1
    assert next_boot(machine) == before and machine.file(DROP_IN) is None
    assert not [line for line in machine.ran if "--update-kernel" in line or line == "update-grub"]


def test_kernel_that_came_later_gets_them_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "grubby")
    machine.apply("iommu=pt")
    machine.kernels["c"] = ["ro"]
    assert len(machine.line("iommu=pt").changes)
    machine.apply("iommu=pt")
    assert machine.kernels["c"] == ["ro", "iommu=pt"]


def test_later_file_that_replaces_the_variable_is_found_out(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "update-grub")
    machine.file("etc/default/grub.d/99-vendor.cfg", 'GRUB_CMDLINE_LINUX="console=tty0"\n')
    with pytest.raises(Failure, match=r"lack iommu=pt after they were written.*grub\.d that replace.*is taken back"):
        machine.apply("iommu=pt")
    assert machine.file(DROP_IN) is None and machine.ran.count("update-grub") == 2
    assert not (tmp_path / "state").exists()
    machine.file("etc/default/grub.d/40-cloud.cfg", 'GRUB_CMDLINE_LINUX="console=tty0"\n')
    (tmp_path / "etc/default/grub.d/99-vendor.cfg").unlink()
    machine.apply("iommu=pt")
    assert {"console=tty0", "iommu=pt"} <= set(next_boot(machine)[0])


def test_host_without_a_known_boot_loader(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with pytest.raises(Failure, match=r"No boot loader is known on this host.*Add iommu=pt"):
        machine.line("iommu=pt")
    assert not len(machine.line().changes)


@pytest.mark.parametrize("bad", ["iommu=pt quiet", "a;reboot", 'x="y"', "$(id)", "", "-x", "a\nb", "a=1\n", "a\0b"])
def test_what_is_no_argument_is_refused(machine: Machine, bad: str) -> None:
    with pytest.raises(Failure, match="is no argument of a kernel"):
        machine.line("iommu=pt", bad)
    assert machine.ran == []


def test_quoted_argument_is_one() -> None:
    assert _cmdline.tokens('root=UUID=5d dyndbg="file a +p; file b +p" quiet') == [
        "root=UUID=5d", 'dyndbg="file a +p; file b +p"', "quiet",
    ]  # fmt: skip


@given(st.text(max_size=200))
def test_any_line_and_any_configuration_is_no_traceback(text: str) -> None:
    assert all(isinstance(token, str) for token in _cmdline.tokens(text))
    assert isinstance(_cmdline.grub_entries(text), list) and isinstance(_cmdline.grubby_entries(text), list)


def test_drop_in_of_somebody_else_is_kept_and_given_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "update-grub")
    theirs = 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX panic=5"\n'
    machine.file(DROP_IN, theirs)
    assert not len(machine.line().changes), "nothing is wanted, so it stays"
    machine.apply("iommu=pt")
    machine.apply("iommu=pt", "pci=noats")
    assert "panic=5" not in (machine.file(DROP_IN) or "")
    machine.apply()
    assert machine.file(DROP_IN) == theirs and not (tmp_path / "state").exists()
    assert "panic=5" in next_boot(machine)[0] and not len(machine.line().changes)


def test_drop_in_of_ours_is_known_without_the_record(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "update-grub")
    machine.apply("iommu=pt")
    for path in (tmp_path / "state").iterdir():
        path.unlink()
    assert not len(machine.line("iommu=pt").changes)
    machine.apply("iommu=pt", "pci=noats")
    assert {"iommu=pt", "pci=noats"} <= set(next_boot(machine)[0])
    machine.apply()
    assert machine.file(DROP_IN) is None and "iommu=pt" not in next_boot(machine)[0]


def test_value_that_grubby_replaces_comes_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "grubby")
    for arguments in machine.kernels.values():
        arguments += ["iommu=on", "console=tty0"]
    machine.apply("iommu=pt")
    machine.apply("iommu=pt", "pci=noats")
    assert all("iommu=on" not in entry for entry in next_boot(machine))
    machine.apply("pci=noats")
    assert all({"iommu=on", "pci=noats"} <= set(entry) and "iommu=pt" not in entry for entry in next_boot(machine))
    machine.apply()
    assert all(sorted(entry) == ["console=tty0", "iommu=on", "quiet", "ro"] for entry in next_boot(machine))
    assert not (tmp_path / "state").exists()


def test_grubby_that_does_not_what_it_is_told_is_found_out_and_taken_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "grubby")
    machine.kernels["a"].append("iommu=on")
    real = machine.grubby
    machine.grubby = lambda words: real([word.replace("pci=noats", "") for word in words])  # type: ignore[method-assign]
    with pytest.raises(Failure, match=r"lack pci=noats after they were written.*What was written is taken back"):
        machine.apply("iommu=pt", "pci=noats")
    assert all("iommu=pt" not in entry and "iommu=on" in entry for entry in next_boot(machine)[:1])
    assert not (tmp_path / "state").exists()


def test_generator_that_fails_leaves_no_drop_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, "update-grub")
    real = machine.run
    answers = iter([Failure("update-grub exited with 1: No space left on device")])

    def run(argv: t.Sequence[str], **options: t.Any) -> Result:
        for answer in answers:
            raise answer
        return real(argv, **options)

    monkeypatch.setattr(machine, "run", run)
    with pytest.raises(Failure, match=r"No space left on device\. What was written is taken back"):
        machine.apply("iommu=pt")
    assert machine.file(DROP_IN) is None and not (tmp_path / "state").exists()


def test_memory_tests_and_other_systems_are_no_kernels_of_this_one() -> None:
    text = """
### BEGIN /etc/grub.d/10_linux ###
\tlinux\t/boot/vmlinuz-6.1 root=UUID=5d ro quiet iommu=pt
### END /etc/grub.d/10_linux ###
### BEGIN /etc/grub.d/20_memtest86+ ###
\tlinux16 /boot/memtest86+.bin console=ttyS0,115200
### END /etc/grub.d/20_memtest86+ ###
### BEGIN /etc/grub.d/30_os-prober ###
\tlinux /boot/vmlinuz-5.4 root=/dev/sdb1 ro
### END /etc/grub.d/30_os-prober ###
### BEGIN /etc/grub.d/10_linux_zfs ###
\tlinux /BOOT/vmlinuz-6.8 root=ZFS=x ro
"""
    assert _cmdline.grub_entries(text) == [
        ["root=UUID=5d", "ro", "quiet", "iommu=pt"], ["root=ZFS=x", "ro"],
    ]  # fmt: skip


def test_argument_that_a_later_one_beats_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "update-grub")
    machine.file("etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=off console=tty0"\n')
    machine.run(["update-grub"])
    line = machine.apply("iommu=pt", "console=ttyS0")
    assert [text.partition(" on the")[0] for text in line.doubts] == ["iommu=off stands after iommu=pt"]
    assert machine.line("iommu=pt", "console=ttyS0").doubts[:1] == line.doubts[:1]
    assert _cmdline.overruled(["iommu=pt"], ["iommu=off", "iommu=pt"]) == []
    assert _cmdline.overruled(["a=1", "a=2"], ["a=1", "a=2"]) == []


def test_kernel_that_grub_did_not_start_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "update-grub")
    assert machine.apply("iommu=pt").doubts == []
    machine.boot("root=/dev/vda ro console=ttyS0")
    assert [text[:47] for text in machine.line("iommu=pt").doubts] == [
        "The running kernel was not started by GRUB (its"
    ]


def test_loader_without_any_entry_is_no_success(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "grubby")
    machine.kernels.clear()
    assert len(machine.line("iommu=pt").changes)
    with pytest.raises(Failure, match="has no entry that starts a kernel of this system"):
        machine.apply("iommu=pt")
    assert not len(machine.line().changes)


def test_what_was_added_by_a_loader_that_is_gone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "grubby")
    machine.apply("iommu=pt")
    machine.tools = ()
    with pytest.raises(Failure, match=r"Take iommu=pt out of the kernel's command line by hand, then remove .*json"):
        machine.line()
