# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _modules
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._modules import Brought, ModuleSet, Running

LOAD = "etc/modules-load.d/gpu-fabric.conf"
PROBE = "etc/modprobe.d/gpu-fabric.conf"


class Kernel(Cli):
    """modprobe against a /proc/modules of its own."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__()
        self.root = root
        self.refuses: dict[str, str] = {}
        self.brings: dict[str, list[str]] = {}
        self.used_by: dict[str, str] = {}
        #: What udev loads for a device that comes with a module.
        self.beside: list[str] = []
        (root / "proc").mkdir()
        (root / "proc/modules").write_text("")

    def which(self, name: str) -> str | None:
        return f"/sbin/{name}"

    def run(self, argv: t.Sequence[str], **_options: t.Any) -> Result:  # type: ignore[override]
        self.ran.append(" ".join(argv))
        name = argv[-1]
        if name in self.refuses:
            return Result(tuple(argv), 1, "", self.refuses[name])
        if argv[:2] == ["modprobe", "--remove"] or argv[0] == "rmmod":
            if name in self.used_by.values():
                return Result(tuple(argv), 1, "", f"rmmod: ERROR: Module {name} is in use")
            self.used_by.pop(name, None)
            lines = (self.root / "proc/modules").read_text().splitlines(keepends=True)
            (self.root / "proc/modules").write_text("".join(line for line in lines if line.split()[0] != name))
        elif argv[0] == "modprobe":
            for needed in self.brings.get(name, ()):
                self.insert(needed, users=name)
                self.used_by[name] = needed
            self.insert(name)
            for other in self.beside:
                self.insert(other)
        return Result(tuple(argv), 0, "", "")

    def insert(self, name: str, users: str = "", **parameters: str) -> None:
        with (self.root / "proc/modules").open("a") as stream:
            stream.write(f"{name} 16384 0 {users + ',' if users else '-'} Live 0x0000000000000000\n")
        for parameter, value in parameters.items():
            path = self.root / "sys/module" / name / "parameters" / parameter
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value + "\n")
            (self.root / "sys/module" / name / "initstate").write_text("live\n")


@pytest.fixture
def kernel(tmp_path: pathlib.Path) -> Kernel:
    return Kernel(tmp_path)


def modules(kernel: Kernel, **wanted: t.Any) -> ModuleSet:
    originals = StateFile("files.json", str(kernel.root / "state"))
    usual: dict[str, t.Any] = {"load": [], "options": {}, "blacklist": [], "now": True, "originals": originals}
    return ModuleSet("gpu-fabric", cli=kernel, root=str(kernel.root), **{**usual, **wanted})


def test_file_of_somebody_else_is_kept_and_given_back(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    for name in (LOAD, PROBE):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("# site\n")
    modules(kernel, load=["ib_uverbs"]).apply()
    assert "ib_uverbs" in (tmp_path / LOAD).read_text()
    # nothing is wanted there, so what others have there stays
    assert (tmp_path / PROBE).read_text() == "# site\n"
    modules(kernel, load=["ib_umad"]).apply()
    assert not modules(kernel, load=["ib_umad"]).changed_paths
    modules(kernel, absent=True).apply()
    assert (tmp_path / LOAD).read_text() == "# site\n"
    assert not (tmp_path / "state").exists()
    assert not modules(kernel, absent=True).changed_paths


def test_file_of_ours_alone_goes(kernel: Kernel, tmp_path: pathlib.Path) -> None:
    modules(kernel, load=["ib_uverbs"]).apply()
    modules(kernel, absent=True).apply()
    assert not (tmp_path / LOAD).exists() and not (tmp_path / "state").exists()


def test_built_in_without_parameters_is_loaded(kernel: Kernel) -> None:
    path = kernel.root / "lib/modules" / os.uname().release / "modules.builtin"
    path.parent.mkdir(parents=True)
    path.write_text("kernel/drivers/infiniband/core/ib-core.ko\nkernel/lib/crc16.ko.zst\n")
    todo = modules(kernel, load=["ib_core", "crc16"])
    assert todo.loaded == [] and todo.apply() == [] and not kernel.ran


@pytest.mark.parametrize("text", ['a="b', "", "  ", 1, None, "a=1\nb=2"])
def test_what_is_no_option_is_refused(kernel: Kernel, text: t.Any) -> None:
    with pytest.raises(Failure, match=r"options of nvidia: .* is not NAME=VALUE"):
        modules(kernel, options={"nvidia": text})


def test_a_blacklist_of_others_keeps_a_module_out_at_boot(kernel: Kernel) -> None:
    for path, text in {
        "etc/modprobe.d/site.conf": "# blacklist ib_umad\nblacklist nouveau\n",
        "usr/lib/modprobe.d/vendor.conf": "blacklist ib-umad\n",
        "usr/lib/modprobe.d/site.conf": "blacklist ib_core\n",
    }.items():
        (kernel.root / path).parent.mkdir(parents=True, exist_ok=True)
        (kernel.root / path).write_text(text)
    todo = modules(kernel, load=["ib_umad", "ib_core"])
    said = "ib-umad would not be loaded at boot: /usr/lib/modprobe.d/vendor.conf has 'blacklist ib-umad'"
    assert todo.barred == [f"{said}. Remove that line"]
    assert modules(kernel, load=["ib_core"]).barred == []


def test_an_initramfs_that_cannot_be_made_is_made_by_the_next_run(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = kernel.root / f"boot/initrd.img-{os.uname().release}"
    image.parent.mkdir()
    image.touch()
    real = kernel.run

    def full(argv: t.Sequence[str], **options: t.Any) -> Result:
        if argv[0] == "update-initramfs":
            raise Failure("update-initramfs -u -k all exited with 1: No space left on device")
        return real(argv, **options)

    monkeypatch.setattr(kernel, "run", full)
    with pytest.raises(Failure, match=r"No space left on device\. Every file of this call is as it was before"):
        modules(kernel, blacklist=["nouveau"], initramfs=True).apply()
    assert not (kernel.root / PROBE).exists() and not (kernel.root / "state").exists()
    monkeypatch.undo()
    modules(kernel, blacklist=["nouveau"], initramfs=True).apply()
    assert "update-initramfs -u -k all" in kernel.ran


def test_loaded_now_and_at_boot(kernel: Kernel) -> None:
    kernel.insert("ib_core")
    todo = modules(kernel, load=["ib_core", "ib-umad"])
    assert todo.loaded == ["ib_umad"] and not kernel.ran
    assert todo.apply() == []
    assert kernel.ran == ["modprobe ib_umad"]
    assert (kernel.root / LOAD).read_text().splitlines()[1:] == ["ib_core", "ib_umad"]
    assert not len(modules(kernel, load=["ib_core", "ib-umad"]).changes)


def test_built_in_is_loaded(kernel: Kernel) -> None:
    (kernel.root / "sys/module/ib_core").mkdir(parents=True)
    assert modules(kernel, load=["ib_core"]).loaded == []


def test_not_loaded_now_when_not_asked(kernel: Kernel) -> None:
    todo = modules(kernel, load=["nvidia"], now=False)
    assert todo.apply() == [] and not kernel.ran
    assert (kernel.root / LOAD).exists()


def test_modprobes_own_words(kernel: Kernel) -> None:
    said = "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument"
    kernel.refuses["nvidia_peermem"] = said
    failures = modules(kernel, load=["nvidia_peermem", "ib_umad"]).apply()
    assert failures == [f"nvidia_peermem does not load: {said}"]
    assert "modprobe ib_umad" in kernel.ran


def test_success_that_loads_nothing_is_a_failure(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "insert", lambda name: None)
    assert modules(kernel, load=["ib_umad"]).apply() == [
        "ib_umad is not among the loaded modules although modprobe succeeded: it is an alias, or a line "
        "'install ib_umad …' in modprobe.d runs instead. Look at: modprobe --show-depends ib_umad"
    ]


def test_nouveau_is_kept_out_for_good(kernel: Kernel) -> None:
    kernel.insert("nouveau")
    todo = modules(kernel, blacklist=["nouveau"])
    todo.apply()
    text = (kernel.root / PROBE).read_text()
    assert "blacklist nouveau\n" in text and "install nouveau /bin/false\n" in text
    assert "options nouveau modeset=0\n" in text
    assert todo.intruders == ["nouveau"]


def test_options_in_force_are_compared(kernel: Kernel) -> None:
    kernel.insert("nvidia", NVreg_EnableStreamMemOPs="0", NVreg_Open="Y")
    wanted = {"nvidia": "NVreg_EnableStreamMemOPs=1  NVreg_Open=1 NVreg_NotShown=3"}
    todo = modules(kernel, options=wanted)
    assert todo.reload_required == ["nvidia NVreg_EnableStreamMemOPs: '0' is in force, '1' is wanted"]
    todo.apply()
    assert (
        "options nvidia NVreg_EnableStreamMemOPs=1 NVreg_Open=1 NVreg_NotShown=3\n" in (kernel.root / PROBE).read_text()
    )


def test_initramfs_is_made_once(kernel: Kernel) -> None:
    assert modules(kernel, blacklist=["nouveau"], initramfs=True).initramfs is None
    image = kernel.root / f"boot/initrd.img-{os.uname().release}"
    image.parent.mkdir()
    image.touch()
    todo = modules(kernel, blacklist=["nouveau"], initramfs=True)
    assert "initramfs" in todo.changes.subjects
    todo.apply()
    assert kernel.ran == ["update-initramfs -u -k all"]
    again = modules(kernel, blacklist=["nouveau"], initramfs=True)
    assert again.initramfs is None and not len(again.changes)


def test_reload_replaces_what_is_loaded(kernel: Kernel) -> None:
    for name in ("nvidia", "nvidia_uvm", "nvidia_drm"):
        kernel.insert(name)
    chain = ["nvidia_drm", "nvidia_uvm", "nvidia_peermem", "nvidia"]
    todo = modules(kernel, load=["nvidia", "nvidia_uvm"], reload=chain)
    assert {change.subject: change.after for change in todo.changes if "loaded" in change.subject} == {
        "nvidia (loaded)": "anew",
        "nvidia_uvm (loaded)": "anew",
        "nvidia_drm (loaded)": "anew",
    }
    assert todo.apply() == []
    removals = [f"modprobe --remove {name}" for name in ("nvidia_drm", "nvidia_uvm", "nvidia")]
    assert kernel.ran == [*removals, "modprobe nvidia", "modprobe nvidia_uvm", "modprobe nvidia_drm"]


def test_a_module_in_use_stays_and_says_why(kernel: Kernel) -> None:
    kernel.insert("nvidia")
    kernel.refuses["nvidia"] = "modprobe: FATAL: Module nvidia is in use."
    with pytest.raises(
        Failure, match=r"nvidia cannot be unloaded: modprobe: FATAL: Module nvidia is in use\. End what"
    ):
        modules(kernel, load=["nvidia"], reload=["nvidia"]).apply()


def test_the_state_in_sysfs_counts(kernel: Kernel) -> None:
    for name, state in {"nvidia": "live", "ib_umad": "going"}.items():
        (kernel.root / "sys/module" / name).mkdir(parents=True)
        (kernel.root / "sys/module" / name / "initstate").write_text(f"{state}\n")
    (kernel.root / "proc/modules").unlink()
    assert modules(kernel, load=["nvidia", "ib_umad"]).loaded == ["ib_umad"]


def test_what_follows_another_module_does_so_whoever_loads_that(kernel: Kernel) -> None:
    todo = modules(kernel, follow={"mlx5-ib": ["nvidia-peermem"]})
    todo.apply()
    assert "softdep mlx5_ib post: nvidia_peermem\n" in (kernel.root / PROBE).read_text()
    assert not (kernel.root / LOAD).exists() and kernel.ran == []
    assert len(modules(kernel, follow={"mlx5_ib": ["nvidia_peermem"]}).changes) == 0
    modules(kernel, absent=True).apply()
    assert not (kernel.root / PROBE).exists()
    for wrong in ({"mlx5_ib": "nvidia_peermem"}, {"mlx5_ib": []}, {"mlx5_ib": ["a b"]}):
        with pytest.raises(Failure):
            modules(kernel, follow=wrong)


def test_absent_removes_the_files(kernel: Kernel) -> None:
    modules(kernel, load=["ib_umad"], blacklist=["nouveau"]).apply()
    todo = modules(kernel)
    assert sorted(todo.changed_paths) == [str(kernel.root / PROBE), str(kernel.root / LOAD)]
    todo.apply()
    assert not (kernel.root / LOAD).exists() and not (kernel.root / PROBE).exists()
    assert not len(modules(kernel).changes)


def recorded(kernel: Kernel, **wanted: t.Any) -> ModuleSet:
    return modules(kernel, state=StateFile("modules.json", str(kernel.root / "state")), **wanted)


def test_absent_takes_out_of_the_kernel_what_it_put_there(kernel: Kernel) -> None:
    kernel.insert("mlx5_core")
    kernel.brings["rdma_ucm"] = ["ib_cm"]
    recorded(kernel, load=["mlx5_core", "rdma_ucm"]).apply()
    assert Running(str(kernel.root)).loaded() == {"mlx5_core", "rdma_ucm", "ib_cm"}
    foretold = recorded(kernel, absent=True)
    assert sorted(foretold.given_back) == ["ib_cm", "rdma_ucm"]
    foretold.apply()
    assert Running(str(kernel.root)).loaded() == {"mlx5_core"} and foretold.kept == []
    assert not (kernel.root / "state").exists()
    assert not len(recorded(kernel, absent=True).changes)


def test_what_came_with_packages_goes_with_the_sets_that_are_named(kernel: Kernel) -> None:
    state = StateFile("modules.json", str(kernel.root / "state"))
    for stem, names in {"gpu-fabric-ofed": ["ib_umad"], "gpu-fabric-driver": ["nvidia"]}.items():
        for name in names:
            kernel.insert(name)
        Brought([stem], Running(str(kernel.root)), kernel, state).remember(names)
    recorded(kernel, absent=True, came_with=["gpu-fabric-ofed"]).apply()
    assert Running(str(kernel.root)).loaded() == {"nvidia"}
    assert state.load() == {"gpu-fabric-driver": ["nvidia"]}


def test_what_came_with_packages_stays_as_long_as_they_do(kernel: Kernel) -> None:
    modules_state, packages = (
        StateFile(f"{name}.json", str(kernel.root / "state")) for name in ("modules", "packages")
    )
    kernel.insert("ib_umad")
    Brought(["gpu-fabric-ofed"], Running(str(kernel.root)), kernel, modules_state).remember(["ib_umad"])
    packages.save({"gpu-fabric-ofed": {"packages": ["rdma-core"]}})
    recorded(kernel, load=["ib_umad", "rdma_ucm"]).apply()
    sets = ["gpu-fabric-ofed", "gpu-fabric-opensm"]
    recorded(kernel, absent=True, came_with=_modules.gone(sets, packages)).apply()
    assert Running(str(kernel.root)).loaded() == {"ib_umad"}, "its packages are still there"
    packages.save({})
    recorded(kernel, absent=True, came_with=_modules.gone(sets, packages)).apply()
    assert Running(str(kernel.root)).loaded() == set() and not (kernel.root / "state").exists()


def test_only_what_a_module_needs_came_with_it(kernel: Kernel) -> None:
    kernel.brings["mlx5_ib"] = ["ib_uverbs"]
    kernel.beside = ["usb_storage"]
    recorded(kernel, load=["mlx5_ib"]).apply()
    kernel.insert("ib_core")
    (kernel.root / "sys/module/ib_core/holders/ib_uverbs").mkdir(parents=True)
    assert Running(str(kernel.root)).needed_by(["mlx5_ib"]) == {"mlx5_ib", "ib_uverbs", "ib_core"}
    recorded(kernel, absent=True).apply()
    assert Running(str(kernel.root)).loaded() == {"usb_storage", "ib_core"}


def test_what_was_loaded_is_known_after_a_run_that_was_cut_off(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    real = kernel.run

    def cut(argv: t.Sequence[str], **options: t.Any) -> Result:
        if argv[-1] == "rdma_ucm":
            raise KeyboardInterrupt
        return real(argv, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(kernel, "run", cut)
        recorded(kernel, load=["ib_umad", "rdma_ucm"]).apply()
    assert Running(str(kernel.root)).loaded() == {"ib_umad"}
    recorded(kernel, absent=True).apply()
    assert Running(str(kernel.root)).loaded() == set() and not (kernel.root / "state").exists()


def test_absent_leaves_what_is_in_use_and_says_so_once(kernel: Kernel) -> None:
    recorded(kernel, load=["nvidia"]).apply()
    kernel.used_by["nvidia_fs"] = "nvidia"
    todo = recorded(kernel, absent=True)
    assert todo.apply() == []
    assert todo.kept == ["nvidia: still in use, and loaded until the next boot (rmmod: ERROR: Module nvidia is in use)"]
    assert not len(recorded(kernel, absent=True).changes)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"load": ["a b"]}, "'a b' is no kernel module's name"),
        ({"load": ["-r"]}, "'-r' is no kernel module's name"),
        ({"load": ["nou-veau"], "blacklist": ["nou_veau"]}, "nou_veau: a module cannot both be loaded and be kept out"),
    ],
)
def test_bad_names_are_refused(kernel: Kernel, wanted: dict[str, t.Any], message: str) -> None:
    with pytest.raises(Failure, match=message):
        modules(kernel, **wanted)


def test_nothing_wanted_is_no_file() -> None:
    assert _modules.render_load([]) is None
    assert _modules.render_modprobe({}, [], {}) is None
