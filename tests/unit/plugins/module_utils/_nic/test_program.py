"""Run-time NIC settings: read, compare, write what differs, read back; the same through either tool."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import install, program

sys.path.insert(0, str(Path(__file__).parent))

from fake_nic import FakeCli

WANTED = {
    "trust": "dscp",
    "dscp_to_priority": {"26": 3, "48": 6},
    "pfc": [False, False, False, True, False, False, False, False],
    "pause": {"rx": False, "tx": False},
    "max_read_request_bytes": 4096,
    "traffic_class": 106,
}
ENTRY = {"netdev": "no-such-rail", "hca": "mlx5_0", "port": 1, "pci": "0000:18:00.0", "settings": WANTED}


@pytest.mark.parametrize("qos_tool", ["dcb", "mlnx_qos"])
def test_every_setting_is_brought_about_and_a_second_look_finds_nothing(qos_tool: str) -> None:
    cli = FakeCli((qos_tool, "ethtool", "setpci"))
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
    assert cli.device_control == 0x5930, "only the three bits of the size may change"
    assert program.plan(ENTRY, cli).steps == []


@pytest.mark.parametrize("qos_tool", ["dcb", "mlnx_qos"])
def test_pause_goes_off_before_pfc_comes_on(qos_tool: str) -> None:
    cli = FakeCli((qos_tool, "ethtool", "setpci"))
    program.apply(program.plan(ENTRY, cli))
    pause = next(index for index, command in enumerate(cli.writes) if command.startswith("ethtool -A"))
    pfc = next(index for index, command in enumerate(cli.writes) if "pfc" in command)
    assert pause < pfc


def test_pfc_that_is_right_is_not_written_again() -> None:
    """Writing the mask bounces the link even when it stays the same."""
    cli = FakeCli()
    cli.pfc = [0, 0, 0, 1, 0, 0, 0, 0]
    todo = program.plan(ENTRY, cli)
    assert not todo.flaps
    program.apply(todo)
    assert not [command for command in cli.writes if "pfc" in command]


def test_setting_that_does_not_take_is_an_error_with_both_values() -> None:
    cli = FakeCli()
    cli.refuse_pfc = True
    todo = program.plan(ENTRY, cli)
    with pytest.raises(Failure, match=r"no-such-rail: pfc is .*False.* after it was set to .*True"):
        program.apply(todo)


def test_what_this_system_has_no_place_for_is_told() -> None:
    assert "traffic_class" in program.plan(ENTRY, FakeCli()).unsupported


def test_port_without_a_tool_for_qos_is_refused() -> None:
    with pytest.raises(Failure, match=r"neither mlnx_qos \(OFED\) nor dcb \(package iproute2\)"):
        program.plan(ENTRY, FakeCli(("ethtool",)))


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
