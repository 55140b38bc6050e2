# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as a whole: what is remembered, what goes back, and what lies on the host for its next boot."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _files
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import (
    difference,
    host,
    install,
    installation,
    irqbalance,
    knobs,
    pcie,
    program,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet
from ansible_collections.railyard.gpu_fabric.plugins.modules import nic_settings


class FakeCli:
    """A port's PFC mask behind dcb, and systemctl."""

    pfc: t.ClassVar[list[bool]] = [False] * 8
    ran: t.ClassVar[list[str]] = []

    def which(self, name: str) -> str | None:
        return name if name == "dcb" else None

    def run(self, argv: list[str], check: bool = True, **_: object) -> Result:
        self.ran.append(" ".join(argv))
        stdout = "{}"
        if argv[:4] == ["dcb", "-N", "-j", "pfc"]:
            stdout = json.dumps({"prio_pfc": self.pfc, "delay": 0})
        elif argv[:3] == ["dcb", "pfc", "set"]:
            self.pfc[:] = [word.endswith(":on") for word in argv[6:]]
        return Result(tuple(argv), 0, stdout, "")


class Module:
    def __init__(self, check_mode: bool, **params: t.Any) -> None:
        self.check_mode = check_mode
        self.params = {"ports": [], "host": {}, "allow_disruption": "none", "gpu_processes": [], **params}
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


MASK = [False, False, False, True, False, False, False, False]
PORT = {"netdev": "lo", "hca": None, "port": 1, "pci": "0000:18:00.0", "settings": {"pfc": MASK}}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    FakeCli.pfc[:] = [False] * 8
    FakeCli.ran.clear()
    (tmp_path / "thp").write_text("always [madvise] never\n")
    real = host.write_file

    def kernel(path: str, text: str) -> None:
        words = [f"[{word}]" if word == text else word for word in ("always", "madvise", "never")]
        real(path, " ".join(words) + "\n" if path == host.HUGEPAGES else text)

    monkeypatch.setattr(host, "HUGEPAGES", str(tmp_path / "thp"))
    monkeypatch.setattr(host, "write_file", kernel)
    monkeypatch.setattr(nic_settings, "Cli", FakeCli)
    monkeypatch.setattr(nic_settings, "StateFile", lambda name: StateFile(name, str(tmp_path / "record")))
    monkeypatch.setattr(installation, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(installation, "WANTS", str(tmp_path / "units/wants"))
    monkeypatch.setattr(program, "CONFIG", str(tmp_path / "etc/nics.json"))
    monkeypatch.setattr(install, "COMMAND", str(tmp_path / "gpu-fabric-nic"))
    monkeypatch.setattr(install, "RULES", str(tmp_path / "rules.d/nic.rules"))
    monkeypatch.setattr(install, "LIBRARY", str(tmp_path / "library"))
    real_files = irqbalance.files
    monkeypatch.setattr(irqbalance, "POLICY", str(tmp_path / "library/irqbalance-policy"))
    monkeypatch.setattr(irqbalance, "DROP_IN", str(tmp_path / "drop-in/irqbalance.conf"))
    monkeypatch.setattr(irqbalance, "EARLIER", str(tmp_path / "etc/systemd/system/irqbalance.service.d/50-ours.conf"))
    monkeypatch.setattr(irqbalance, "files", lambda functions: real_files(functions, str(tmp_path)))
    return tmp_path


def run(check_mode: bool = False, **params: t.Any) -> dict[str, t.Any]:
    module = Module(check_mode, **params)
    result = nic_settings.run(t.cast(t.Any, module))
    assert "warnings" not in result, "ansible-core takes them by module.warn only"
    return {**result, "warnings": module.warnings}


def everything(machine: Path) -> dict[str, str]:
    return {
        str(path.relative_to(machine)): path.readlink().name if path.is_symlink() else path.read_text()
        for path in sorted(machine.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_host_is_set_remembered_started_at_boot_and_given_back(machine: Path) -> None:
    before = everything(machine)
    wanted = {"transparent_hugepages": "always"}
    told = run(check_mode=True, host=wanted)
    assert everything(machine) == before
    done = run(host=wanted)
    assert told["changed"] and told["diff"] == done["diff"] and done["changed_ports"] == [program.HOST]
    assert "[always]" in (machine / "thp").read_text()
    config = json.loads((machine / "etc/nics.json").read_text())
    assert config == {"comment": config["comment"], "ports": [], "host": wanted}
    assert (machine / "units/wants" / install.HOST_UNIT).is_symlink()
    assert "apply @host" in (machine / "units" / install.HOST_UNIT).read_text()
    assert not run(host=wanted)["changed"]
    assert run()["changed"]
    assert "[madvise]" in (machine / "thp").read_text()
    assert everything(machine) == before and not run()["changed"]
    assert not (machine / "library").exists(), "empty folders are left-overs, too"


@pytest.mark.parametrize("udev_stays", [True, False])
def test_the_rules_folder_goes_where_udev_went_before(
    machine: Path, monkeypatch: pytest.MonkeyPatch, udev_stays: bool
) -> None:
    folder = machine / "rules.d"
    folder.mkdir()
    run(ports=[PORT], allow_disruption="linkflap")
    assert list(folder.iterdir()) == [folder / "nic.rules"]
    tools = {"dcb", "udevadm"} if udev_stays else {"dcb"}
    monkeypatch.setattr(FakeCli, "which", lambda self, name: name if name in tools else None)
    run(allow_disruption="linkflap")
    assert folder.exists() == udev_stays


def test_host_goes_back_while_ports_stay(machine: Path) -> None:
    run(ports=[PORT], host={"transparent_hugepages": "never"}, allow_disruption="linkflap")
    run(ports=[PORT])
    assert "[madvise]" in (machine / "thp").read_text() and FakeCli.pfc == MASK
    assert list((machine / "units/wants").iterdir()) == [machine / "units/wants/gpu-fabric-nic@lo.service"]
    assert "host" not in json.loads((machine / "etc/nics.json").read_text())


def test_nothing_at_all_is_changed_where_one_port_may_not_flap(machine: Path) -> None:
    before = everything(machine)
    with pytest.raises(Failure, match=r"lo: pfc is 0,0,0,0,0,0,0,0, wanted 0,0,0,1,0,0,0,0"):
        run(ports=[PORT], host={"transparent_hugepages": "always"})
    assert everything(machine) == before and FakeCli.pfc == [False] * 8


def test_pinned_interrupts_are_kept_from_irqbalance(machine: Path) -> None:
    unit = machine / "usr/lib/systemd/system/irqbalance.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/sbin/irqbalance --foreground\n")
    port = {**PORT, "settings": {"irq_affinity": "0-3"}}
    run(ports=[port])
    assert "0000:18:00.0" in (machine / "library/irqbalance-policy").read_text()
    assert (machine / "library/irqbalance-policy").stat().st_mode & 0o111
    assert "--policyscript=" in (machine / "drop-in/irqbalance.conf").read_text()
    assert FakeCli.ran[-1] == "systemctl try-restart irqbalance.service"
    FakeCli.ran.clear()
    assert not run(ports=[port])["changed"] and FakeCli.ran == []
    run(ports=[])
    assert not (machine / "library/irqbalance-policy").exists() and not (machine / "drop-in/irqbalance.conf").exists()


def test_a_port_that_is_gone_is_forgotten_and_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(ports=[PORT], allow_disruption="linkflap")
    monkeypatch.setattr(program, "is_there", lambda entry: False)
    told = run(check_mode=True)
    assert told["warnings"] == ["lo is gone, and with it what was set; nothing of it is given back or remembered (pfc)"]
    assert run()["warnings"] == told["warnings"] and run()["warnings"] == []
    assert not (machine / "record/nics.json").exists()


def test_first_values_of_a_card_that_is_gone_are_no_other_cards(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcie, "DEVICES", str(machine / "devices"))
    (machine / "devices/0000:18:00.0/net/lo").mkdir(parents=True)
    path = machine / "record/nics.json"
    path.parent.mkdir()
    gone = {"port": {**PORT, "pci": "0000:3b:00.0"}, "before": {"pfc": [True] * 8}}
    del gone["port"]["settings"]
    path.write_text(json.dumps({"lo": gone}))
    (machine / "net/lo").mkdir(parents=True)
    (machine / "net/lo/device").symlink_to(machine / "devices/0000:18:00.0")
    (machine / "devices/0000:3b:00.0").mkdir()
    monkeypatch.setitem(program.CLASSES, "net", str(machine / "net"))
    told = run(ports=[PORT], allow_disruption="linkflap")
    assert told["warnings"] and [saved["before"] for saved in json.loads(path.read_text()).values()] == [
        {"pfc": [False] * 8}
    ]
    path.write_text(json.dumps({**json.loads(path.read_text()), "gone": gone}))
    assert run(ports=[PORT])["warnings"] and not run(ports=[PORT])["warnings"], "told once"


def test_a_port_that_appears_again_is_set_again(machine: Path) -> None:
    run(ports=[PORT], allow_disruption="linkflap")
    assert [line for line in (machine / "rules.d/nic.rules").read_text().splitlines() if not line.startswith("#")] == [
        'ACTION=="add", SUBSYSTEM=="net|infiniband", KERNELS=="0000:18:00.0", TAG+="systemd", '
        'ENV{SYSTEMD_WANTS}+="gpu-fabric-nic@lo.service"'
    ]
    unit = (machine / "units" / install.UNIT).read_text()
    assert "RemainAfterExit" not in unit, "a unit that is active is not started again"
    run(allow_disruption="linkflap")
    assert not (machine / "rules.d").exists()


def test_a_port_keeps_its_first_values_over_a_new_name(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcie, "DEVICES", str(machine / "devices"))
    (machine / "devices/0000:18:00.0/net/lo").mkdir(parents=True)
    run(ports=[PORT], allow_disruption="linkflap")
    # The record as it was written under the name that the port had before.
    path = machine / "record/nics.json"
    saved = json.loads(path.read_text())["lo"]
    path.write_text(json.dumps({"ens1f0np0": {**saved, "port": {**saved["port"], "netdev": "ens1f0np0"}}}))
    assert not run(ports=[PORT])["changed"]
    run(allow_disruption="linkflap")
    assert FakeCli.pfc == [False] * 8 and not path.exists()


def test_what_cost_the_link_is_not_tried_again_at_boot(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(todo: program.Todo) -> None:
        raise program.LinkLost("lo: the link did not come back", netdev="lo", settings=["pfc"])

    monkeypatch.setattr(program, "apply", apply)
    with pytest.raises(program.LinkLost):
        run(ports=[{**PORT, "settings": {"pfc": MASK, "irq_affinity": "0-3"}}], allow_disruption="linkflap")
    [port] = json.loads((machine / "etc/nics.json").read_text())["ports"]
    assert port["netdev"] == "lo" and port["settings"] == {"irq_affinity": "0-3"}


def test_the_diff_is_a_line_for_each_setting_and_each_file(machine: Path) -> None:
    told = run(check_mode=True, ports=[PORT], allow_disruption="linkflap")
    lines = told["diff"][0]["prepared"].splitlines()
    assert lines[0] == "lo pfc 0,0,0,0,0,0,0,0 -> 0,0,0,1,0,0,0,0"
    config = json.dumps({"comment": "", "ports": [PORT]}, indent=2).count("\n") + 1
    assert [line for line in lines if "nics.json" in line] == [f"{program.CONFIG}: {config} lines, new"]
    assert len(lines) <= 6 and run(ports=[PORT], allow_disruption="linkflap")["diff"] == told["diff"]
    assert run(ports=[PORT])["diff"] == []
    other = {**PORT, "settings": {"pfc": [False] * 8}}
    lines = run(check_mode=True, ports=[other], allow_disruption="linkflap")["diff"][0]["prepared"].splitlines()
    assert lines == ["lo pfc 0,0,0,1,0,0,0,0 -> 0,0,0,0,0,0,0,0", f"{program.CONFIG}: 1 lines added, 1 removed"]


def test_of_a_file_that_drifted_the_changed_lines_are_shown(machine: Path) -> None:
    run(ports=[PORT], allow_disruption="linkflap")
    config = machine / "etc/nics.json"
    config.write_text(config.read_text().replace("0000:18:00.0", "0000:19:00.0"))
    told = run(check_mode=True, ports=[PORT])
    assert told["changed"] and told["changed_ports"] == []
    assert told["diff"][0]["prepared"].splitlines() == [
        "lo pci 0000:19:00.0 -> 0000:18:00.0 (at boot)",
        f"{program.CONFIG}: 1 lines added, 1 removed",
    ]
    assert run(ports=[PORT])["diff"] == told["diff"] and not run(ports=[PORT])["changed"]


def test_lines_of_a_file_that_is_no_list_of_settings(machine: Path) -> None:
    run(ports=[PORT], allow_disruption="linkflap")
    for path, text in ((machine / "etc/nics.json", "{broken\n"), (machine / "units" / install.UNIT, "[Unit]\nX=1\n")):
        good = path.read_text()
        path.write_text(text)
        shown = run(check_mode=True, ports=[PORT])["diff"][0]["prepared"]
        assert shown.startswith(f"--- {path}\n+++ {path}\n@@ ")
        assert all(f"-{line}" in shown.splitlines() for line in text.splitlines() if line not in good)
        assert "\n \n" not in shown, "no lines around it"
        run(ports=[PORT])
        assert path.read_text() == good


def test_what_the_boot_sets_is_compared_setting_by_setting() -> None:
    def config(dscp: str, tclass: int, extra: int = 0) -> str:
        settings = {"dscp_to_priority": {dscp: 3, "48": 6}, "traffic_class": tclass, "pfc": MASK}
        ports = [{**PORT, "netdev": f"e{number}", "settings": settings} for number in range(2 + extra)]
        return json.dumps({"ports": ports}, indent=2)

    lines = difference.kept(config("26", 106), config("24", 98))
    assert lines is not None and list(lines.values()) == [
        "e0 dscp_to_priority 26:3 -> 24:3 (at boot)",
        "e0 traffic_class 106 -> 98 (at boot)",
        "e1 dscp_to_priority 26:3 -> 24:3 (at boot)",
        "e1 traffic_class 106 -> 98 (at boot)",
    ]
    files = ChangeSet()
    files.compare("nics.json", config("26", 106, extra=28), config("24", 98, extra=28))
    (shown,) = difference.of({}, files, "nics.json")
    assert shown["prepared"].splitlines()[-1] == "nics.json: 60 lines added, 60 removed"
    assert {netdev for netdev, _ in difference.kept(config("26", 106, 1), config("26", 106)) or ()} == {"e2"}
    assert difference.kept("[]", config("26", 1)) is None and difference.kept("", config("26", 1)) is None


@pytest.fixture
def ofed(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Congestion control of the port, by priority; off where nobody has switched it on."""
    monkeypatch.setattr(knobs, "NET", str(machine / "net"))
    for point in ("rp", "np"):
        folder = machine / "net/lo/ecn" / f"roce_{point}/enable"
        folder.mkdir(parents=True)
        for priority in range(8):
            (folder / str(priority)).write_text(f"{int(priority == 5 and point == 'np')}\n")
    return machine / "net/lo/ecn"


def enabled(ofed: Path, priority: int) -> str:
    return "".join((ofed / f"roce_{point}/enable/{priority}").read_text().strip() for point in ("rp", "np"))


def on(*priorities: int) -> dict[str, t.Any]:
    flags = {"rp": True, "np": True}
    return {**PORT, "settings": {"ecn": {str(priority): flags for priority in priorities}}}


def test_each_key_of_a_map_goes_back_by_itself(ofed: Path) -> None:
    run(ports=[on(3)])
    run(ports=[on(3, 5)])
    assert (enabled(ofed, 3), enabled(ofed, 5)) == ("11", "11")
    told = run(check_mode=True, ports=[on(5)])
    assert told["diff"] == run(ports=[on(5)])["diff"]
    assert (enabled(ofed, 3), enabled(ofed, 5)) == ("00", "11") and not run(ports=[on(5)])["changed"]
    run()
    assert (enabled(ofed, 3), enabled(ofed, 5)) == ("00", "01"), "its first value, not the one of the first run"


def test_keys_that_go_and_keys_that_come_are_both_shown(ofed: Path) -> None:
    run(ports=[on(3)])
    assert run(check_mode=True, ports=[on(5)])["diff"][0]["prepared"].splitlines()[:2] == [
        "lo ecn 3:rp:1 np:1 -> 3:np:0 rp:0",
        "lo ecn 5:rp:0 np:1 -> 5:rp:1 np:1",
    ]


def test_first_values_outlive_a_run_that_was_cut_off(ofed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(path: str, text: str) -> None:
        raise Failure("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(knobs, "write_file", cut)
        with pytest.raises(Failure, match="lo: ecn is 5:rp:0 np:1, wanted 5:rp:1 np:1: the power went"):
            run(ports=[on(5)])
    (ofed / "roce_rp/enable/5").write_text("1\n")  # what the run had written before it was cut off
    run(ports=[on(5)])
    run()
    assert enabled(ofed, 5) == "01"


def test_what_was_to_be_given_back_outlives_a_run_that_was_cut_off(ofed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {**PORT, "settings": {"pfc": MASK, **on(5)["settings"]}}
    run(ports=[both], allow_disruption="linkflap")

    def cut(todo: program.Todo) -> None:
        raise Failure("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(program, "apply", cut)
        with pytest.raises(Failure, match="the power went"):
            run(ports=[on(5)], allow_disruption="linkflap")
    assert FakeCli.pfc == MASK
    run(allow_disruption="linkflap")
    assert FakeCli.pfc == [False] * 8 and enabled(ofed, 5) == "01"


class LinkCli(FakeCli):
    """A port's speed and negotiation behind ethtool."""

    autoneg: t.ClassVar[list[str]] = []
    speeds: t.ClassVar[list[int]] = []

    def which(self, name: str) -> str | None:
        return name

    def run(self, argv: list[str], check: bool = True, **options: object) -> Result:
        if argv[:2] == ["ethtool", "-s"]:
            words = dict(zip(argv[3::2], argv[4::2]))
            if "advertise" in words:
                self.speeds[:] = [100, 200]
            elif "speed" in words:
                self.speeds[:] = [int(words["speed"]) // 1000]
            self.autoneg[:] = [words.get("autoneg", *self.autoneg)]
        elif argv[:1] == ["ethtool"] and len(argv) == 2:
            modes = {"Supported": [100, 200], "Advertised": self.speeds}
            lists = "".join(
                f"\t{label} link modes: " + " ".join(f"{speed}000baseCR4/Full" for speed in speeds) + "\n"
                for label, speeds in modes.items()
            )
            said = f"Settings for lo:\n{lists}\tSpeed: 100000Mb/s\n\tAuto-negotiation: {self.autoneg[0]}\n"
            return Result(tuple(argv), 0, said, "")
        return super().run(argv, check, **options)


def test_negotiation_goes_back_by_itself(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nic_settings, "Cli", LinkCli)
    LinkCli.autoneg[:], LinkCli.speeds[:] = ["on"], [100, 200]

    def ask(check_mode: bool = False, **link: t.Any) -> dict[str, t.Any]:
        ports = [{**PORT, "settings": {"link": link}}] if link else []
        return run(check_mode=check_mode, ports=ports, allow_disruption="linkflap")

    ask(speed_gbps=100, autoneg=False)
    assert (LinkCli.autoneg, LinkCli.speeds) == (["off"], [100])
    told = ask(check_mode=True, speed_gbps=100)
    assert told["diff"] == ask(speed_gbps=100)["diff"]
    assert told["diff"][0]["prepared"].splitlines()[0] == "lo link autoneg:0 -> autoneg:1"
    assert (LinkCli.autoneg, LinkCli.speeds) == (["on"], [100]) and not ask(speed_gbps=100)["changed"]
    ask()
    assert (LinkCli.autoneg, LinkCli.speeds) == (["on"], [100, 200])
    assert not (machine / "record/nics.json").exists() and not ask()["changed"]


def test_interrupts_go_back_to_where_each_of_them_was(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, cpus in (("40", "0-127"), ("41", "2"), ("42", "64")):
        (machine / "irq" / number).mkdir(parents=True)
        (machine / "irq" / number / "smp_affinity_list").write_text(f"{cpus}\n")
        (machine / "net/lo/device/msi_irqs" / number).mkdir(parents=True)
    monkeypatch.setattr(host, "IRQS", str(machine / "irq"))
    monkeypatch.setattr(host, "NET", str(machine / "net"))
    port = {**PORT, "settings": {"irq_affinity": "0-3"}}

    def lists() -> list[str]:
        return [path.read_text().strip() for path in sorted((machine / "irq").glob("*/smp_affinity_list"))]

    run(ports=[port])
    assert lists() == ["0-3", "2", "0-3"] and not run(ports=[port])["changed"]
    run()
    assert lists() == ["0-127", "2", "64"] and not run()["changed"]


def test_a_record_of_another_shape_is_named_with_the_remedy(machine: Path) -> None:
    path = machine / "record/nics.json"
    path.parent.mkdir()
    for text in ('{"lo": {}}', '{"lo": 3}', '{"lo": {"port": {"netdev": "lo"}, "before": []}}'):
        path.write_text(text)
        with pytest.raises(Failure, match=r"nics\.json.* remove it"):
            run(ports=[PORT], allow_disruption="linkflap")
        assert FakeCli.pfc == [False] * 8 and path.read_text() == text


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ({"26": 3, "24": 0, "8": 1}, {"24": 3}, "e1 x 24:0 -> 24:3"),
        ({}, {"24": 3}, "e1 x 24:unset -> 24:3"),
        (None, 4096, "e1 x unset -> 4096"),
        ({"rx": True, "tx": False}, {"rx": False, "tx": False}, "e1 x rx:1 -> rx:0"),
        ({"tsa": ["ets", "strict"], "tc_bandwidth": [100, 0]}, {"tsa": ["ets", "ets"], "tc_bandwidth": [50, 50]},
         "e1 x tsa:ets,strict tc_bandwidth:100,0 -> tsa:ets,ets tc_bandwidth:50,50"),
    ],
)  # fmt: skip
def test_a_setting_in_one_line(before: t.Any, after: t.Any, line: str) -> None:
    assert difference.setting("e1", "x", before, after) == line


def foreign(machine: Path) -> None:
    """A host on which somebody else has everything that the module writes, under the very same names."""
    for name in ("gpu-fabric-nic", "units/gpu-fabric-nic@.service", "rules.d/nic.rules", "etc/nics.json",
                 f"library/{install.PROGRAM.replace('.', '/')}.py", "library/site.py"):  # fmt: skip
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text(f"# the site's {name}\n")
        (machine / name).chmod(0o640)
    (machine / "units/wants").mkdir()
    for name, target in (("lo", "gpu-fabric-nic@.service"), ("eth9", "site@.service")):
        (machine / f"units/wants/gpu-fabric-nic@{name}.service").symlink_to(machine / "units" / target)


def modes(machine: Path) -> dict[str, int]:
    return {name: (machine / name).stat().st_mode & 0o777 for name in everything(machine) if "wants" not in name}


def test_files_of_somebody_else_are_kept_and_given_back(machine: Path) -> None:
    foreign(machine)
    before, bits = everything(machine), modes(machine)
    told = run(check_mode=True, ports=[PORT], allow_disruption="linkflap")
    assert everything(machine) == before
    assert run(ports=[PORT], allow_disruption="linkflap")["diff"] == told["diff"]
    assert "Managed by" in (machine / "units/gpu-fabric-nic@.service").read_text()
    assert not run(ports=[PORT])["changed"]
    assert "site's" in (machine / "library/site.py").read_text(), "nothing of ours, and not in the way"
    run(ports=[{**PORT, "settings": {"pfc": MASK, "irq_affinity": "0-3"}}])
    told = run(check_mode=True, allow_disruption="linkflap")
    assert run(allow_disruption="linkflap")["diff"] == told["diff"]
    assert everything(machine) == before and modes(machine) == bits
    assert not (machine / "record").exists() and not run()["changed"]


@pytest.mark.parametrize("after", [0, 7, 15, 20, 22, 24, 25])
def test_first_contents_outlive_a_run_that_was_cut_off(
    machine: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Killed after so many files, on the way there and on the way back."""
    foreign(machine)
    before = everything(machine)
    real = _files._apply

    def cut(number: int) -> t.Callable[[_files.Step], None]:
        left = [number]

        def apply(step: _files.Step) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            real(step)

        return apply

    for ports in ([PORT], []):
        with monkeypatch.context() as patch:
            patch.setattr(_files, "_apply", cut(after))
            with pytest.raises(KeyboardInterrupt):
                run(ports=ports, allow_disruption="linkflap")
        run(ports=ports, allow_disruption="linkflap")
    assert everything(machine) == before and not run()["changed"]


def test_a_link_of_somebody_else_comes_back(machine: Path) -> None:
    link = machine / "units/wants/gpu-fabric-nic@lo.service"
    link.parent.mkdir(parents=True)
    link.symlink_to("../site.service")
    told = run(check_mode=True, ports=[PORT], allow_disruption="linkflap")
    assert f"{link} link to ../site.service -> link to" in told["diff"][0]["prepared"]
    run(ports=[PORT], allow_disruption="linkflap")
    assert link.readlink().name == "gpu-fabric-nic@.service"
    run(allow_disruption="linkflap")
    assert link.readlink() == Path("../site.service") and not run()["changed"]


def test_without_its_record_what_is_marked_as_ours_goes(machine: Path) -> None:
    before = everything(machine)
    run(ports=[PORT], allow_disruption="linkflap")
    (machine / "record/files.json").unlink()
    run(allow_disruption="linkflap")
    assert everything(machine) == before


def test_a_file_in_the_place_of_a_link_is_refused(machine: Path) -> None:
    link = machine / "units/wants/gpu-fabric-nic@lo.service"
    link.parent.mkdir(parents=True)
    link.write_text("[Unit]\n")
    before = everything(machine)
    with pytest.raises(Failure, match=r"nic@lo\.service: a link to .* is wanted, but something else of that name"):
        run(ports=[PORT], allow_disruption="linkflap")
    assert everything(machine) == before and FakeCli.pfc == [False] * 8


def as_an_earlier_version_left_it(machine: Path) -> None:
    """No record of first contents or folders of the library, no mark in sources and configuration, other names."""
    for path in (machine / "library").rglob("*.py"):
        path.write_text(path.read_text().removeprefix(install.HEADER))
    config = json.loads((machine / "etc/nics.json").read_text())
    del config["comment"]
    (machine / "etc/nics.json").write_text(json.dumps(config))
    (machine / "record/files.json").unlink()
    (machine / "record/folders.json").unlink()
    Path(irqbalance.EARLIER).parent.mkdir(parents=True)
    Path(irqbalance.DROP_IN).rename(irqbalance.EARLIER)


@pytest.mark.parametrize("first_a_run", [True, False])
def test_what_an_earlier_version_left_is_ours(machine: Path, first_a_run: bool) -> None:
    unit = machine / "lib/systemd/system/irqbalance.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/sbin/irqbalance\n")
    for name in ("etc", "drop-in", "rules.d", "units/wants"):
        (machine / name).mkdir(parents=True)
    before, wanted = everything(machine), [{**PORT, "settings": {"irq_affinity": "0-3"}}]
    run(ports=wanted)
    as_an_earlier_version_left_it(machine)
    if first_a_run:
        told = run(check_mode=True, ports=wanted)
        assert run(ports=wanted)["diff"] == told["diff"] and not run(ports=wanted)["changed"]
        assert not Path(irqbalance.EARLIER).exists()
        assert Path(irqbalance.DROP_IN).read_text().count("policyscript") == 1
    run()
    assert everything(machine) == before and not run()["changed"]
    assert not (machine / "library").exists() and not (machine / "record").exists()


def test_a_first_value_that_an_earlier_version_kept_for_all_keys(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had speed and negotiation once, and not for each key."""
    monkeypatch.setattr(nic_settings, "Cli", LinkCli)
    LinkCli.autoneg[:], LinkCli.speeds[:] = ["on"], [100, 200]
    wanted = [{**PORT, "settings": {"link": {"speed_gbps": 100}}}]
    run(ports=wanted, allow_disruption="linkflap")
    first = {"autoneg": True, "speed_gbps": None}
    record = json.loads((machine / "record/nics.json").read_text())
    record["lo"]["before"]["link"] = first
    (machine / "record/nics.json").write_text(json.dumps(record))
    assert not run(ports=wanted)["changed"] and LinkCli.speeds == [100]
    run(allow_disruption="linkflap")
    assert (LinkCli.autoneg, LinkCli.speeds) == (["on"], [100, 200]) and not (machine / "record").exists()
