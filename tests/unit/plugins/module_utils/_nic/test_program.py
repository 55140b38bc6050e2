"""Run-time NIC settings: read, compare, write what differs, read back; the same through either tool."""

from __future__ import annotations

import json
import struct
import sys
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import (
    host,
    install,
    irqbalance,
    knobs,
    pcie,
    program,
)

sys.path.insert(0, str(Path(__file__).parent))

from fake_nic import FakeCli, Refused

WANTED = {
    "trust": "dscp",
    "dscp_to_priority": {"26": 3, "48": 6},
    "pfc": [False, False, False, True, False, False, False, False],
    "pause": {"rx": False, "tx": False},
    "max_read_request_bytes": 4096,
    "traffic_class": 106,
}
ENTRY = {"netdev": "no-such-rail", "hca": "mlx5_0", "port": 1, "pci": "0000:18:00.0", "settings": WANTED}
CLASSES = {
    "dcbx": "os",
    "priority_to_tc": [0, 1, 2, 3, 4, 5, 6, 7],
    "ets": {"tsa": ["ets"] + ["strict"] * 2 + ["ets"] + ["strict"] * 4, "tc_bandwidth": [40, 0, 0, 60, 0, 0, 0, 0]},
    "buffer_size": [20016, 200000, 0, 0, 0, 0, 0, 0],
    "prio_buffer": [0, 0, 0, 1, 0, 0, 0, 0],
    "cable_length_m": 30,
}


def config_space(acs: int | None = None, device_control: int = 0x2930) -> bytes:
    """A function with a PCI Express capability at 0x60 and, where told, ACS at 0x160."""
    data = bytearray(4096)
    struct.pack_into("<H", data, 0x06, 0x10)
    data[0x34] = 0x60
    struct.pack_into("<BBH", data, 0x60, 0x10, 0x00, 0x0002)
    struct.pack_into("<H", data, 0x68, device_control)
    if acs is not None:
        struct.pack_into("<I", data, 0x100, 0x0001 | 1 << 16 | 0x160 << 20)
        struct.pack_into("<IHH", data, 0x160, 0x000D | 1 << 16, 0x5F, acs)
    return bytes(data)


def word_at(path: Path, offset: int) -> int:
    return struct.unpack_from("<H", path.read_bytes(), offset)[0]


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pcie, "DEVICES", str(tmp_path / "devices"))
    return tmp_path / "devices"


@pytest.fixture(autouse=True)
def nic(devices: Path) -> Path:
    return function(devices, "0000:18:00.0")


def function(devices: Path, bdf: str, acs: int | None = None) -> Path:
    (devices / bdf).mkdir(parents=True)
    path = devices / bdf / "config"
    path.write_bytes(config_space(acs))
    return path


@pytest.mark.parametrize("qos_tool", ["dcb", "mlnx_qos"])
def test_every_setting_is_brought_about_and_a_second_look_finds_nothing(qos_tool: str, nic: Path) -> None:
    cli = FakeCli((qos_tool, "ethtool"))
    if qos_tool == "mlnx_qos":
        # Elsewhere the first entry of the table is what makes a port trust DSCP, so there it starts empty.
        cli.dscp = {26: 0, 48: 0}
    todo = program.plan(ENTRY, cli)
    assert {step.knob.name for step in todo.steps} >= {"trust", "pfc", "pause", "max_read_request_bytes"}
    assert cli.writes == []
    program.apply(todo)
    assert cli.pfc == [0, 0, 0, 1, 0, 0, 0, 0]
    assert cli.dscp == {26: 3, 48: 6}
    assert cli.pause == {"rx": "off", "tx": "off"}
    assert word_at(nic, 0x68) == 0x5930, "only the three bits of the size may change"
    assert program.plan(ENTRY, cli).steps == []


@pytest.mark.parametrize("qos_tool", ["dcb", "mlnx_qos"])
def test_classes_buffers_and_owner_are_the_same_through_either_tool(qos_tool: str) -> None:
    cli = FakeCli((qos_tool, "ethtool"))
    cli.dcbx, cli.pfc = [], [0, 0, 0, 1, 0, 0, 0, 0]
    entry = {**ENTRY, "settings": CLASSES}
    todo = program.plan(entry, cli)
    assert [step.knob.name for step in todo.steps] == list(CLASSES), "who decides comes first, room before the length"
    assert not todo.flaps
    program.apply(todo)
    assert "host" in cli.dcbx and cli.prio_tc == CLASSES["priority_to_tc"]
    assert (cli.tsa, cli.tc_bw) == (CLASSES["ets"]["tsa"], CLASSES["ets"]["tc_bandwidth"])
    assert (cli.buffer_size, cli.prio_buffer, cli.cable) == (CLASSES["buffer_size"], CLASSES["prio_buffer"], 30)
    assert cli.pfc == [0, 0, 0, 1, 0, 0, 0, 0], "setting the length must leave PFC as it is"
    assert program.plan(entry, cli).steps == []


@pytest.mark.parametrize("qos_tool", ["dcb", "mlnx_qos"])
def test_first_values_of_classes_can_be_given_back(qos_tool: str) -> None:
    cli = FakeCli((qos_tool, "ethtool"))
    before = {step.knob.name: step.before for step in program.plan({**ENTRY, "settings": CLASSES}, cli).steps}
    program.apply(program.plan({**ENTRY, "settings": CLASSES}, cli))
    program.apply(program.plan({**ENTRY, "settings": before}, cli))
    fresh = FakeCli()
    assert cli.dcbx == fresh.dcbx
    assert (cli.prio_tc, cli.tsa, cli.tc_bw, cli.buffer_size) == (
        fresh.prio_tc,
        fresh.tsa,
        fresh.tc_bw,
        fresh.buffer_size,
    )


@pytest.mark.parametrize(("qos_tool", "flags"), [("mlnx_qos", []), ("dcb", ["host", "ieee"])])
def test_ownership_goes_back_where_the_tool_has_a_word_for_it(qos_tool: str, flags: list[str]) -> None:
    cli = FakeCli((qos_tool, "ethtool"))
    cli.dcbx = []
    program.apply(program.plan({**ENTRY, "settings": {"dcbx": "os"}}, cli))
    assert "host" in cli.dcbx
    program.apply(program.plan({**ENTRY, "settings": {"dcbx": "firmware"}}, cli))
    assert cli.dcbx == flags


def test_sizes_that_the_firmware_rounds_are_not_written_for_ever() -> None:
    cli = FakeCli()
    cli.buffer_size = [20016, 199872, 0, 0, 0, 0, 0, 0]
    wanted = {"buffer_size": CLASSES["buffer_size"]}
    assert program.plan({**ENTRY, "settings": wanted}, cli).steps == []
    cli.buffer_size[2] = 256
    assert program.plan({**ENTRY, "settings": wanted}, cli).steps, "a buffer that should not be there is no rounding"


def test_what_is_not_wanted_is_not_asked_for() -> None:
    cli = FakeCli()
    program.plan({**ENTRY, "settings": {"pfc": [False] * 8}}, cli)
    assert [command.split()[3] for command in cli.commands if command.startswith("dcb")] == ["app", "pfc"]


def test_accelerations_are_set_with_their_select_bits_and_only_those_wanted() -> None:
    cli = FakeCli(("ethtool", "mlxreg"))
    entry = {**ENTRY, "settings": {"accelerations": {"adp_retrans": False, "tx_window": True}}}
    program.apply(program.plan(entry, cli))
    assert (cli.registers["roce_adp_retrans_en"], cli.registers["roce_tx_window_en"]) == (0, 1)
    assert "roce_tx_window_field_select=1" in cli.writes[-1] and "adp_retrans_field_select" not in cli.writes[-1]
    assert program.plan(entry, cli).steps == []
    assert program.plan(entry, FakeCli(("ethtool",))).unsupported == ["accelerations"]


def test_read_request_of_a_function_that_shows_no_capability_is_told(nic: Path) -> None:
    nic.write_bytes(nic.read_bytes()[:64])
    assert "max_read_request_bytes" in program.plan(ENTRY, FakeCli()).unsupported


# -- the host as a whole ----------------------------------------------------------------------------------------------


def test_acs_is_cleared_on_the_named_bridges_only_and_can_come_back(devices: Path) -> None:
    bridge, other = function(devices, "0000:15:00.0", acs=0x1D), function(devices, "0000:16:00.0", acs=0x1D)
    plain = function(devices, "0000:17:00.0")
    entry = {"netdev": program.HOST, "settings": {"acs_control": {"0000:15:00.0": 0, "0000:17:00.0": 0}}}
    todo = program.plan(entry, FakeCli())
    assert todo.steps[0].before == {"0000:15:00.0": 0x1D}, "a bridge without ACS has nothing to clear"
    unchanged = plain.read_bytes()
    program.apply(todo)
    assert (word_at(bridge, 0x166), word_at(other, 0x166)) == (0, 0x1D)
    assert plain.read_bytes() == unchanged
    assert program.plan(entry, FakeCli()).steps == []
    program.apply(program.plan({**entry, "settings": {"acs_control": todo.steps[0].before}}, FakeCli()))
    assert word_at(bridge, 0x166) == 0x1D


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two CPUs with governors, huge pages, a port with two interrupts."""
    for cpu, governor in (("cpu0", "powersave"), ("cpu1", "powersave")):
        folder = tmp_path / "cpu" / cpu / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
        (folder / "scaling_available_governors").write_text("performance powersave\n")
    (tmp_path / "cpu" / "cpufreq").mkdir()
    (tmp_path / "thp").write_text("always [madvise] never\n")
    for number, cpus in (("40", "0-127"), ("41", "3")):
        (tmp_path / "irq" / number).mkdir(parents=True)
        (tmp_path / "irq" / number / "smp_affinity_list").write_text(f"{cpus}\n")
        (tmp_path / "net/rail0/device/msi_irqs").mkdir(parents=True, exist_ok=True)
        (tmp_path / "net/rail0/device/msi_irqs" / number).write_text("msix\n")
    monkeypatch.setattr(host, "CPUS", str(tmp_path / "cpu"))
    monkeypatch.setattr(host, "HUGEPAGES", str(tmp_path / "thp"))
    monkeypatch.setattr(host, "IRQS", str(tmp_path / "irq"))
    monkeypatch.setattr(host, "NET", str(tmp_path / "net"))
    return tmp_path


def test_governor_of_every_cpu(machine: Path) -> None:
    entry = {"netdev": program.HOST, "settings": {"cpu_governor": "performance"}}
    (machine / "cpu/cpu1/cpufreq/scaling_governor").write_text("performance\n")
    todo = program.plan(entry, FakeCli())
    assert todo.steps[0].before == "performance powersave"
    program.apply(todo)
    assert (machine / "cpu/cpu0/cpufreq/scaling_governor").read_text().strip() == "performance"
    assert program.plan(entry, FakeCli()).steps == []
    with pytest.raises(Failure, match=r"ondemand is not offered .* it has performance, powersave"):
        program.apply(program.plan({**entry, "settings": {"cpu_governor": "ondemand"}}, FakeCli()))


def test_host_without_governors_or_huge_pages_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CPUS", str(tmp_path / "none"))
    monkeypatch.setattr(host, "HUGEPAGES", str(tmp_path / "none/enabled"))
    entry = {"netdev": program.HOST, "settings": {"cpu_governor": "performance", "transparent_hugepages": "always"}}
    todo = program.plan(entry, FakeCli())
    assert todo.steps == [] and todo.unsupported == ["cpu_governor", "transparent_hugepages"]


def test_huge_pages_are_read_from_their_brackets(machine: Path) -> None:
    entry = {"netdev": program.HOST, "settings": {"transparent_hugepages": "always"}}
    step = program.plan(entry, FakeCli()).steps[0]
    assert (step.before, step.after) == ("madvise", "always")
    assert program.plan({**entry, "settings": {"transparent_hugepages": "madvise"}}, FakeCli()).steps == []


def test_interrupts_within_the_node_are_left_where_they_are(machine: Path) -> None:
    entry = {"netdev": "rail0", "settings": {"irq_affinity": "0-31,64-95"}}
    program.apply(program.plan(entry, FakeCli()))
    assert (machine / "irq/40/smp_affinity_list").read_text() == "0-31,64-95"
    assert (machine / "irq/41/smp_affinity_list").read_text() == "3\n", "it was on the node already"
    assert program.plan(entry, FakeCli()).steps == []


@given(st.sets(st.integers(0, 500)))
def test_lists_of_cpus_are_read_as_they_are_written(cpus: set[int]) -> None:
    assert host.cpu_set(host.cpu_list(cpus)) == cpus


def test_settings_of_a_port_are_none_of_the_hosts() -> None:
    with pytest.raises(Failure, match=r"^host: unknown settings pfc"):
        program.plan({"netdev": program.HOST, "settings": {"pfc": [True] * 8}}, FakeCli())


def test_configuration_holds_the_host_beside_the_ports(tmp_path: Path) -> None:
    path = tmp_path / "nics.json"
    path.write_text('{"ports": [], "host": {"cpu_governor": "performance"}}')
    assert program.load(str(path)) == [{"netdev": program.HOST, "settings": {"cpu_governor": "performance"}}]
    path.write_text('{"ports": []}')
    assert program.load(str(path)) == []


def test_irqbalance_is_told_to_leave_pinned_interrupts_alone(tmp_path: Path) -> None:
    import subprocess

    unit = tmp_path / "usr/lib/systemd/system/irqbalance.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(
        "[Service]\nEnvironmentFile=-/etc/default/irqbalance\n"
        "ExecStart=/usr/sbin/irqbalance \\\n --foreground $OPTIONS\n"
    )
    files = irqbalance.files({"0000:18:00.0"}, str(tmp_path))
    drop_in = files[irqbalance.DROP_IN]
    assert drop_in is not None and "ExecStart=\nExecStart=/usr/sbin/irqbalance" in drop_in
    assert drop_in.rstrip().endswith(f"--foreground $OPTIONS --policyscript={irqbalance.POLICY}")
    script = tmp_path / "policy"
    script.write_text(files[irqbalance.POLICY] or "")

    def answer(path: str) -> str:
        return subprocess.run(["sh", str(script), path, "40"], capture_output=True, text=True, check=True).stdout

    assert answer("/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0") == "ban=true\n"
    assert answer("/sys/devices/pci0000:15/0000:15:01.0") == ""
    assert set(irqbalance.files(set(), str(tmp_path)).values()) == {None}
    assert set(irqbalance.files({"0000:18:00.0"}, str(tmp_path / "none")).values()) == {None}


def test_irqbalance_keeps_the_command_line_that_somebody_gave_it(tmp_path: Path) -> None:
    """systemd takes drop-ins in the order of their names, whatever the folder; ours comes last and is not counted."""
    for path, lines in (
        ("usr/lib/systemd/system/irqbalance.service", "ExecStart=/usr/sbin/irqbalance --foreground"),
        (
            "etc/systemd/system/irqbalance.service.d/override.conf",
            "ExecStart=\nExecStart=/usr/sbin/irqbalance -f -t 20",
        ),
        ("run/systemd/system/irqbalance.service.d/10-early.conf", "ExecStart=\nExecStart=/usr/sbin/irqbalance -f -t 5"),
        (irqbalance.DROP_IN, "ExecStart=\nExecStart=/usr/sbin/irqbalance --policyscript=old"),
    ):
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"[Service]\n{lines}\n")
    names = [file.name for file in (tmp_path / "etc/systemd/system/irqbalance.service.d").iterdir()]
    assert max(names) == Path(irqbalance.DROP_IN).name
    text = irqbalance.files({"0000:18:00.0"}, str(tmp_path))[irqbalance.DROP_IN] or ""
    assert text.splitlines()[-1] == f"ExecStart=/usr/sbin/irqbalance -f -t 20 --policyscript={irqbalance.POLICY}"


@pytest.mark.parametrize("qos_tool", ["dcb", "mlnx_qos"])
def test_pause_goes_off_before_pfc_comes_on(qos_tool: str) -> None:
    cli = FakeCli((qos_tool, "ethtool"))
    program.apply(program.plan(ENTRY, cli))
    pause = next(index for index, command in enumerate(cli.writes) if command.startswith("ethtool -A"))
    pfc = next(index for index, command in enumerate(cli.writes) if "pfc" in command)
    assert pause < pfc


@pytest.mark.parametrize("qos_tool", ["mlnx_qos", "dcb"])
def test_pause_goes_off_before_buffers_are_cut(qos_tool: str) -> None:
    """mlx5 wants lossless room in every buffer of a port that has it on."""

    class Paused(FakeCli):
        def keep_lossless_room(self, sizes: list[int], places: list[int]) -> None:
            if "on" in self.pause.values() and any(not sizes[buffer] for buffer in places):
                raise Refused("Attribute write: Invalid argument\n")

    cli = Paused((qos_tool, "ethtool"))
    wanted = {"buffer_size": [0, 20016, 156096] + [0] * 5, "prio_buffer": [0, 0, 0, 2, 0, 0, 0, 0]}
    todo = program.plan({**ENTRY, "settings": {**wanted, "pause": {"rx": False, "tx": False}}}, cli)
    program.apply(todo)
    assert cli.pause == {"rx": "off", "tx": "off"} and cli.buffer_size[2] == 156096
    assert [step.knob.name for part in todo.backwards() for step in part.steps][-1] == "pause"


def test_pfc_that_is_right_is_not_written_again() -> None:
    """Writing the mask bounces the link even when it stays the same."""
    cli = FakeCli()
    cli.pfc = [0, 0, 0, 1, 0, 0, 0, 0]
    todo = program.plan(ENTRY, cli)
    assert not todo.flaps
    program.apply(todo)
    assert not [command for command in cli.writes if "pfc" in command]


def test_setting_that_shows_a_moment_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.time, "sleep", lambda seconds: None)
    cli = FakeCli()
    cli.refuse_pfc = True
    todo = program.plan(ENTRY, cli)
    pfc = next(step for step in todo.steps if step.knob.name == "pfc")
    shown = iter([pfc.before, pfc.before])
    monkeypatch.setattr(pfc.knob, "read", lambda: next(shown, pfc.after))
    program.confirm(todo.port, pfc)


def test_setting_that_does_not_take_is_an_error_with_both_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SETTLE_S", 0)
    cli = FakeCli()
    cli.refuse_pfc = True
    todo = program.plan(ENTRY, cli)
    with pytest.raises(Failure, match=r"no-such-rail: pfc is 0,0,.* after it was set to 0,0,0,1"):
        program.apply(todo)


def test_what_this_system_has_no_place_for_is_told() -> None:
    assert "traffic_class" in program.plan(ENTRY, FakeCli()).unsupported


def test_interrupts_of_queues_that_are_made_anew_are_pinned_at_once(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    affinity = machine / "irq/40/smp_affinity_list"
    affinity.write_text("0-31\n")

    class Queues(FakeCli):
        def ethtool(self, words: list[str]) -> str:
            if words[0] == "-A":
                affinity.write_text("0-127\n")
            return super().ethtool(words)

    entry = {"netdev": "rail0", "settings": {"irq_affinity": "0-31", "pause": {"rx": False, "tx": False}}}
    monkeypatch.setattr(knobs.Pause, "disruption", "linkflap")
    cli = Queues()
    todo = program.plan(entry, cli)
    assert [step.knob.name for step in todo.steps] == ["pause"]
    program.bring_about(entry, todo, cli)
    assert affinity.read_text() == "0-31" and program.plan(entry, cli).steps == []


def test_port_without_ethtool_is_told_what_to_install() -> None:
    with pytest.raises(Failure, match=r"no-such-rail: pause .* install the package ethtool"):
        program.plan(ENTRY, FakeCli(("dcb",)))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"ports": [3]}', '{"ports": [{"settings": {}}]}', '{"ports": [{"netdev": "a"}]}']
)
def test_a_configuration_of_another_shape_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nics.json"
    path.write_text(text)
    assert program.main(["apply", "--config", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_port_without_a_tool_for_qos_is_refused() -> None:
    with pytest.raises(Failure, match=r"neither mlnx_qos \(OFED.*\) nor dcb \(package iproute2\)"):
        program.plan(ENTRY, FakeCli(("ethtool",)))


@pytest.mark.parametrize(
    ("said", "remedy"),
    [("No such device", "There is no interface of that name"), ("Operation not supported", "A virtual function")],
)
def test_an_interface_that_is_not_there_is_not_called_a_virtual_function(said: str, remedy: str) -> None:
    class Refusing(FakeCli):
        def dcb(self, words: list[str]) -> str:
            raise Refused(f"Attribute read: {said}")

    with pytest.raises(Failure, match=f"{said}. {remedy}"):
        program.plan(ENTRY, Refusing(("dcb", "ethtool")))


def test_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(Failure, match="unknown settings trsut"):
        program.plan({**ENTRY, "settings": {"trsut": "dscp"}}, FakeCli())


def test_program_on_the_host_is_complete_and_needs_only_the_standard_library(tmp_path: Path) -> None:
    """The installed files run by themselves: every import is among them or in the standard library."""
    import subprocess

    for path, text in install.library().items():
        target = tmp_path / Path(path).relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    command = install.COMMAND_TEXT.replace(install.LIBRARY, str(tmp_path) + install.LIBRARY)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", command, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "apply" in done.stdout


def test_digest_tells_versions_apart() -> None:
    files = install.library()
    changed = {path: text + "\n" for path, text in files.items()}
    assert install.digest(files) == install.digest(dict(reversed(files.items())))
    assert install.digest(files) != install.digest(changed)


@pytest.fixture
def names(devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Interfaces and adapters by class, each with a link to its function."""
    for kind in program.CLASSES:
        (tmp_path / kind).mkdir()
        monkeypatch.setitem(program.CLASSES, kind, str(tmp_path / kind))
    return tmp_path


def give(names: Path, bdf: str, *devices: str) -> None:
    for device in devices:
        kind, name = device.split("/")
        (names / "devices" / bdf / device).mkdir(parents=True)
        (names / kind / name).mkdir()
        (names / kind / name / "device").symlink_to(names / "devices" / bdf)


FOUND = {"netdev": "ens1f0np0", "hca": "mlx5_0", "port": 1, "pci": "0000:18:00.0"}


def test_a_port_is_found_by_its_function_when_its_names_have_changed(names: Path) -> None:
    assert not program.is_there(FOUND) and program.port_of(FOUND) == program.Port("ens1f0np0", None, 1, FOUND["pci"])
    give(names, "0000:18:00.0", "net/enp24s0np0", "infiniband/rocep24s0")
    assert program.port_of(FOUND) == program.Port("enp24s0np0", "rocep24s0", 1, "0000:18:00.0")
    assert program.is_there(FOUND) and program.has_adapter(FOUND)
    give(names, "0000:18:00.0", "net/enp24s0npf0vf0")
    assert not program.is_there(FOUND), "which of two it was cannot be known"


def test_names_that_went_to_another_card_are_not_followed(names: Path) -> None:
    give(names, "0000:18:00.0", "net/ens2f0np0", "infiniband/mlx5_1")
    give(names, "0000:3b:00.0", "net/ens1f0np0", "infiniband/mlx5_0")
    assert program.port_of(FOUND) == program.Port("ens2f0np0", "mlx5_1", 1, "0000:18:00.0")
    assert program.port_of({**FOUND, "pci": "0000:5d:00.0"}).hca is None
    assert not program.is_there({**FOUND, "pci": "0000:5d:00.0"}), "the card is gone, its name is another one's"


def test_the_adapter_of_a_bond_is_that_of_both_its_ports(names: Path) -> None:
    give(names, "0000:18:00.0", "net/ens1f0np0", "infiniband/mlx5_bond_0")
    give(names, "0000:18:00.1", "net/ens1f1np1")
    for netdev, bdf in (("ens1f0np0", "0000:18:00.0"), ("ens1f1np1", "0000:18:00.1")):
        assert program.port_of({"netdev": netdev, "hca": "mlx5_bond_0", "pci": bdf}).hca == "mlx5_bond_0"


def test_the_program_waits_for_the_adapter_that_comes_after_the_interface(
    names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(names, "0000:18:00.0", "net/ens1f0np0")
    config = names / "nics.json"
    config.write_text(json.dumps({"ports": [{**FOUND, "settings": {"traffic_class": 106}}]}))
    seen: list[program.Port] = []
    monkeypatch.setattr(program.time, "sleep", lambda _s: give(names, "0000:18:00.0", "infiniband/mlx5_0"))
    monkeypatch.setattr(
        program, "plan", lambda entry, cli: (seen.append(program.port_of(entry)), program.Todo(seen[0], [], []))[1]
    )
    assert program.main(["apply", "--config", str(config)]) == 0
    assert seen[0].hca == "mlx5_0"


def test_a_port_that_appears_again_brings_the_bridges_above_it_along(
    names: Path, devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset of the branch gives them their access control back; the host's unit ran at boot and does not again."""
    branch = names / "pci0000:15/0000:15:01.0/0000:16:00.0"
    (branch / "0000:19:00.0/net/ens1f0np0").mkdir(parents=True)
    (devices / "0000:19:00.0").symlink_to(branch / "0000:19:00.0")
    (names / "net/ens1f0np0").mkdir()
    (names / "net/ens1f0np0/device").symlink_to(branch / "0000:19:00.0")
    control = {"0000:15:01.0": 0, "0000:16:00.0": 0, "0000:95:01.0": 0}
    config = names / "nics.json"
    port = {**FOUND, "hca": None, "pci": "0000:19:00.0", "settings": {}}
    host_settings = {"transparent_hugepages": "always", "acs_control": control}
    config.write_text(json.dumps({"ports": [port], "host": host_settings}))
    seen: list[tuple[str, t.Any]] = []

    def plan(entry: dict[str, t.Any], cli: object) -> program.Todo:
        seen.append((entry["netdev"], entry["settings"]))
        return program.Todo(program.Port(entry["netdev"]), [], [])

    monkeypatch.setattr(program, "plan", plan)
    assert program.main(["apply", "ens1f0np0", "--config", str(config)]) == 0
    assert seen == [("ens1f0np0", {}), (program.HOST, {"acs_control": {"0000:15:01.0": 0, "0000:16:00.0": 0}})]
    for argv, expected in (([], ["ens1f0np0", program.HOST]), (["@host"], [program.HOST])):
        seen.clear()
        assert program.main(["apply", *argv, "--config", str(config)]) == 0
        assert [name for name, _ in seen] == expected and seen[-1][1] == host_settings


def test_a_port_without_a_function_has_no_rule() -> None:
    (rule,) = install.rules([{**FOUND, "netdev": "rail-0"}, {**FOUND, "pci": None}]).splitlines()[1:]
    assert 'KERNELS=="0000:18:00.0"' in rule and '+="gpu-fabric-nic@rail-0.service"' in rule
