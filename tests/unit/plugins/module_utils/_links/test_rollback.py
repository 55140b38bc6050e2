"""What takes a change of the management interface back, and that nothing else of the host is touched by it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import rollback
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.delta import delta, missing
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import Link, LinkError, wanted_link

ADDRESSES = [
    {"ifname": "lo", "mtu": 65536, "flags": ["UP"], "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]},
    {
        "ifname": "eno1",
        "mtu": 1500,
        "flags": ["UP", "LOWER_UP"],
        "addr_info": [
            {"local": "10.20.0.5", "prefixlen": 24, "broadcast": "10.20.0.255", "scope": "global"},
            {"local": "fd00:20::5", "prefixlen": 64, "scope": "global"},
            {"local": "10.50.0.1", "address": "10.50.0.2", "prefixlen": 32, "scope": "global"},
            {"local": "2001:db8::77", "prefixlen": 64, "scope": "global", "dynamic": True},
            {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
        ],
    },
]
ROUTES4 = [
    {"dst": "default", "gateway": "10.20.0.1", "dev": "eno1", "protocol": "4", "metric": 100, "flags": []},
    {"dst": "10.20.0.0/24", "dev": "eno1", "protocol": "2", "scope": "253", "prefsrc": "10.20.0.5", "flags": []},
    {"dst": "10.99.0.0/16", "dev": "eno1", "scope": "253", "table": "77", "flags": []},
    {"dst": "10.97.0.0/16", "via": {"family": "inet6", "host": "fe80::7"}, "dev": "eno1", "flags": []},
    {"dst": "10.98.0.0/16", "dev": "eno2", "protocol": "4", "flags": []},
    {"type": "2", "dst": "10.20.0.5", "dev": "eno1", "table": "255", "protocol": "2", "flags": []},
]
ROUTES6 = [
    {"dst": "default", "gateway": "fe80::8", "dev": "eno1", "protocol": "9", "metric": 512, "flags": []},
    {"dst": "default", "gateway": "fe80::9", "dev": "eno1", "protocol": "4", "metric": 1024, "flags": []},
]


@pytest.fixture
def answers() -> dict[str, str]:
    return {
        "addresses": json.dumps(ADDRESSES),
        "routes4": json.dumps(ROUTES4),
        "routes6": json.dumps(ROUTES6),
        "rules4": "[]",
        "rules6": "",
    }


def test_restore_names_everything_of_the_interface_and_nothing_else(answers: dict[str, str]) -> None:
    answers["rules4"] = json.dumps([{"priority": 7, "src": "10.20.0.5", "table": "78"}])
    wanted = wanted_link(
        {
            "netdev": "eno1",
            "addresses": ["10.20.0.5/24"],
            "routes": [{"dst": "default", "via": "10.20.0.9"}],
            "rules": [{"from": "10.20.0.5", "table": table, "priority": 7} for table in (77, 78)],
        }
    )
    commands = [" ".join(argv) for argv in rollback.restore_commands("eno1", answers, wanted)]
    assert commands == [
        "ip -4 rule del from 10.20.0.5 table 77 priority 7",
        "ip -4 route del default via 10.20.0.9 dev eno1 table 254",
        "ip link set dev eno1 mtu 1500",
        "ip address flush dev eno1 scope global permanent",
        "ip link set dev eno1 up",
        "ip address replace 10.20.0.5/24 broadcast 10.20.0.255 dev eno1",
        "ip address replace fd00:20::5/64 nodad dev eno1",
        "ip address replace 10.50.0.1 peer 10.50.0.2/32 dev eno1",
        # on the link before over a gateway; what the kernel makes of addresses comes by itself
        "ip -4 route replace 10.99.0.0/16 dev eno1 scope 253 table 77",
        "ip -4 route replace default via 10.20.0.1 dev eno1 metric 100 proto 4",
        "ip -4 route replace 10.97.0.0/16 via inet6 fe80::7 dev eno1",
        "ip -6 route replace default via fe80::9 dev eno1 metric 1024 proto 4",
    ]


def test_address_of_a_dhcp_server_that_the_change_makes_permanent_gets_its_lifetime_back(
    answers: dict[str, str],
) -> None:
    leased = [
        {"local": "10.20.0.9", "prefixlen": 24, "scope": "global", "dynamic": True, "valid_life_time": 600,
         "preferred_life_time": 500},
    ]  # fmt: skip
    answers["addresses"] = json.dumps([{"ifname": "eno1", "mtu": 1500, "flags": ["UP"], "addr_info": leased}])
    kept = " ".join(rollback.restore_commands("eno1", answers, Link("eno1", addresses=frozenset(["10.20.0.9/24"])))[3])
    assert kept == "ip address replace 10.20.0.9/24 valid_lft 600 preferred_lft 500 dev eno1"
    assert "10.20.0.9" not in str(
        rollback.restore_commands("eno1", answers, Link("eno1", addresses=frozenset(["10.20.0.8/24"])))
    )


def test_program_restores_files_runs_every_command_and_says_that_it_did(tmp_path: pathlib.Path) -> None:
    changed, new = tmp_path / "changed", tmp_path / "new"
    changed.write_text("ours")
    new.write_text("ours")
    ran = tmp_path / "ran"
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "files": {str(tmp_path / "no/such"): "theirs", str(changed): "theirs", str(new): None},
                "restore": [["false"], ["touch", str(ran)], ["false", "-4", "route", "del"]],
                "apply": [["touch", str(tmp_path / "applied")]],
            }
        )
    )
    done = tmp_path / "done"
    argv = [sys.executable, "-c", rollback.PROGRAM, str(plan), "apply", str(done)]
    assert subprocess.run(argv, check=False).returncode == 0
    assert (tmp_path / "applied").exists() and not done.exists() and changed.read_text() == "ours"
    argv[4] = "restore"
    assert subprocess.run(argv, check=False).returncode == 1
    # What is to be deleted may be gone.
    # A command that fails does not keep the others from running, nor does a file that cannot be written.
    assert ran.exists() and json.loads(done.read_text())[-1] == ["false"]
    assert "No such file" in done.read_text()
    assert changed.read_text() == "theirs" and not new.exists()


class Systemd:
    """Answers as systemd would, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.says = "inactive\n"

    def run(self, argv: list[str], check: bool = True, **_: object) -> _cli.Result:
        self.asked.append(list(argv))
        return _cli.Result(tuple(argv), 0, self.says, "")


@pytest.fixture
def pending(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> rollback.Pending:
    monkeypatch.setattr(rollback, "RECORD", str(tmp_path / "pending.json"))
    monkeypatch.setattr(rollback, "DONE", str(tmp_path / "done"))
    return rollback.Pending(Systemd())  # type: ignore[arg-type]


def test_way_back_is_set_before_the_change(pending: rollback.Pending) -> None:
    pending.arm({"netdev": "eno1"}, {"mtu": 1500}, [["apply"]], [["restore"]], {}, 60)
    started = [argv for argv in pending._cli.asked if argv[0] == "systemd-run"]  # type: ignore[attr-defined]
    units = [next(word for word in argv if word.startswith("--unit=")) for argv in started]
    assert units == ["--unit=gpu-fabric-links-rollback", "--unit=gpu-fabric-links-apply"]
    delays = [int(word.partition("=")[2]) for argv in started for word in argv if word.startswith("--on-active=")]
    assert delays[0] - delays[1] == 60
    assert pending.load() == {
        "wanted": {"netdev": "eno1"},
        "before": {"mtu": 1500},
        "apply": [["apply"]],
        "restore": [["restore"]],
        "files": {},
        "rollback_s": 60,
    }


def test_what_was_taken_back_cannot_be_confirmed(pending: rollback.Pending) -> None:
    pending.arm({"netdev": "eno1"}, {"mtu": 1500}, [], [], {}, 60)
    pending.extend(60)
    pathlib.Path(rollback.DONE).write_text("[]")
    assert pending.load() is None
    with pytest.raises(LinkError, match="took it back"):
        pending.extend(60)
    with pytest.raises(LinkError, match="took it back") as told:
        pending.refuse()
    assert "did not succeed" not in str(told.value)
    pathlib.Path(rollback.DONE).write_text(json.dumps(["No space left on device", ["ip", "link", "set"]]))
    with pytest.raises(LinkError, match="did not succeed on the way: No space left on device; ip link set"):
        pending.extend(60)


def test_management_link_keeps_no_other_address_and_loses_none_of_its_own() -> None:
    wanted = wanted_link(
        {
            "netdev": "eno1",
            "management": True,
            "addresses": ["10.20.0.6/24", "10.20.0.7/24"],
            "routes": [{"dst": "default", "via": "10.20.0.1"}],
        }
    )
    present = Link("eno1", mtu=1500, addresses=frozenset(["10.20.0.5/24", "10.20.0.6/24"]), routes=wanted.routes)
    commands = [" ".join(argv) for argv in delta(wanted, present).commands]
    # With .5 the kernel drops .6, which it holds as a secondary, and the default route: all of it is set again.
    assert commands == [
        "ip address flush dev eno1 to 10.20.0.5",
        "ip address replace 10.20.0.6/24 dev eno1",
        "ip address replace 10.20.0.7/24 dev eno1",
        "ip -4 route replace default via 10.20.0.1 dev eno1 table 254",
    ]
    assert set(missing(wanted, present)) == {"still has address 10.20.0.5/24", "no address 10.20.0.7/24"}


def test_management_link_without_addresses_is_refused() -> None:
    with pytest.raises(LinkError, match="would cut the host off"):
        wanted_link({"netdev": "eno1", "management": True, "mtu": 9000})


@pytest.mark.parametrize(("found", "last"), [(False, "down"), (True, None), (None, None)])
def test_released_link_goes_down_only_if_it_was_found_down(found: bool | None, last: str | None) -> None:
    wanted = Link("rail0", up=False if found is False else None)
    commands = delta(wanted, Link("rail0", up=True)).commands
    assert (commands[-1][-1] if commands else None) == last


def test_extended_clock_runs_the_same_way_back_once_more(pending: rollback.Pending) -> None:
    pending.arm({"netdev": "eno1"}, {"mtu": 1500}, [["apply"]], [["restore"]], {}, 60)
    pending._cli.asked.clear()  # type: ignore[attr-defined]
    pending.extend(60)
    stopped, _asked, started = pending._cli.asked  # type: ignore[attr-defined]
    assert stopped == ["systemctl", "stop", "gpu-fabric-links-rollback.timer"]
    assert started[0] == "systemd-run" and "--on-active=60" in started and "restore" in started
    assert pending.load() is not None


def test_change_that_still_waits_is_told_from_one_that_nobody_takes_back(pending: rollback.Pending) -> None:
    pending.refuse_waiting()
    pending.arm({"netdev": "eno1"}, {"mtu": 1500}, [], [], {}, 60)
    # Its timer is gone (`inactive`, says systemd): a record of a run that was cut off while it set it.
    pending.refuse_waiting()
    pending._cli.says = "active\n"  # type: ignore[attr-defined]
    with pytest.raises(LinkError, match=r"eno1 .* takes it back .* within 60 s; run again after that"):
        pending.refuse_waiting()
    pathlib.Path(rollback.DONE).write_text("[]")
    pending.refuse_waiting()


def test_change_does_not_begin_where_nothing_would_take_it_back(
    pending: rollback.Pending, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = pending._cli
    run = systemd.run

    def refuses(argv: list[str], **more: object) -> _cli.Result:
        if argv[0] == "systemd-run" and "apply" in argv:
            raise Failure("System has not been booted with systemd")
        return run(argv, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(systemd, "run", refuses)
    with pytest.raises(LinkError, match=r"No link was changed: eno1 manages the host, .* not been booted with systemd"):
        pending.arm({"netdev": "eno1"}, {}, [["apply"]], [["restore"]], {}, 60)
    assert systemd.asked[-2] == ["systemctl", "stop", "gpu-fabric-links-rollback.timer"]  # type: ignore[attr-defined]
    assert pending.load() is None
