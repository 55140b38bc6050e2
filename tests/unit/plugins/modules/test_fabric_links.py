# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module does in which order, on a host whose kernel and systemd are played: files, timers, `ip`, nmcli."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import CommandFailed, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import (
    boot,
    managers,
    networkd,
    networkmanager,
    rollback,
    system,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import (
    host as links_host,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import LinkError
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.present import QUERIES
from ansible_collections.railyard.gpu_fabric.plugins.modules import fabric_links

MANAGEMENT = {"netdev": "eno1", "management": True, "addresses": ["10.20.0.6/24"]}
RAIL = {"netdev": "rail0", "mtu": 9000, "addresses": ["10.224.0.11/24"]}


class Host:
    """Remembers every command; `ip` changes MTU, addresses and what is up."""

    def __init__(self) -> None:
        self.links: dict[str, dict[str, t.Any]] = {
            "eno1": {"mtu": 1500, "up": True, "addresses": ["10.20.0.5/24"]},
            "rail0": {"mtu": 1500, "up": False, "addresses": []},
        }
        self.ran: list[str] = []
        # What systemd says of every unit, and what `netplan generate` thinks of what it reads.
        self.says = "inactive"
        self.takes: t.Callable[[], bool] = lambda: True

    def which(self, name: str) -> str:
        return f"/usr/bin/{name}"

    def run(self, argv: t.Sequence[str], check: bool = True, **_: t.Any) -> Result:
        command = list(argv)
        if command in QUERIES.values():
            return Result(tuple(argv), 0, self.addresses() if command == QUERIES["addresses"] else "[]", "")
        self.ran.append(" ".join(word if len(word) < 100 else "PROGRAM" for word in command))
        if command[:3] == ["ip", "link", "set"]:
            link = self.links[command[4]]
            if "mtu" in command:
                link["mtu"] = int(command[-1])
            else:
                link["up"] = command[-1] == "up"
        elif command[:2] == ["ip", "address"]:
            link = self.links[command[command.index("dev") + 1]]
            if command[2] == "flush":
                link["addresses"] = [item for item in link["addresses"] if item.split("/")[0] != command[6]]
            else:
                link["addresses"].append(command[3])
        if command == ["netplan", "generate"] and check and not self.takes():
            raise CommandFailed(Result(tuple(argv), 1, "", "Error in network definition"))
        return Result(tuple(argv), 0, self.says, "")

    def addresses(self) -> str:
        return json.dumps(
            [
                {
                    "ifname": name,
                    "mtu": link["mtu"],
                    "flags": ["UP"] if link["up"] else [],
                    "addr_info": [
                        {"local": item.split("/")[0], "prefixlen": int(item.split("/")[1]), "scope": "global"}
                        for item in link["addresses"]
                    ],
                }
                for name, link in self.links.items()
            ]
        )


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    played = Host()
    monkeypatch.setattr(fabric_links, "Cli", lambda: played)
    for file in (fabric_links, boot):
        monkeypatch.setattr(file, "StateFile", lambda name: StateFile(name, str(tmp_path / "state")))
    monkeypatch.setattr(fabric_links, "SETTLE_S", 0)
    monkeypatch.setattr(boot, "is_enabled", lambda *_: True)
    monkeypatch.setattr(rollback, "RECORD", str(tmp_path / "pending.json"))
    monkeypatch.setattr(rollback, "DONE", str(tmp_path / "done"))
    monkeypatch.setattr(system, "SYS", str(tmp_path / "sys"))
    monkeypatch.setattr(system, "NETIF", str(tmp_path / "netif"))
    for manager in managers.MANAGERS.values():
        monkeypatch.setattr(manager.renderer, "DIRECTORY", str(tmp_path / manager.name))
    manages(monkeypatch, "systemd-networkd.service")
    return played


def manages(monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    commands = frozenset(["netplan"] if unit == "netplan" else ["networkctl", "nmcli"])
    units = frozenset(["systemd-networkd.service" if unit == "netplan" else unit])
    found = managers.System(units, commands, None, running=units)
    monkeypatch.setattr(boot, "read_system", lambda _cli: found)


def call(*links: dict[str, t.Any], check_mode: bool = False, **params: t.Any) -> dict[str, t.Any]:
    given = {"links": list(links), "manager": "auto", "protected": ["eno1"], "rollback_s": 0, "confirm": False}
    module = types.SimpleNamespace(params={**given, "state": "present", **params}, check_mode=check_mode)
    return fabric_links.run(module)  # type: ignore[arg-type]


def test_rail_is_set_and_given_back_as_it_was_found(host: Host, tmp_path: pathlib.Path) -> None:
    first = call(RAIL)
    assert first["changed"] and host.links["rail0"] == {"mtu": 9000, "up": True, "addresses": ["10.224.0.11/24"]}
    assert [path.name for path in (tmp_path / "networkd").iterdir()] == ["05-gpu-fabric-rail0.network"]
    assert call(RAIL)["changed"] is False
    assert call(state="absent")["changed"]
    assert host.links["rail0"] == {"mtu": 1500, "up": False, "addresses": []}
    assert not (tmp_path / "networkd").exists() and not (tmp_path / "state/links.json").exists()


def test_unit_is_disabled_with_the_last_link_where_the_first_had_enabled_it(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def told(verb: str) -> int:
        return host.ran.count(f"systemctl {verb} systemd-networkd.service")

    monkeypatch.setattr(boot, "is_enabled", lambda *_: told("enable") > told("disable"))
    call(RAIL)
    assert (told("enable"), call(RAIL)["changed"]) == (1, False)
    given_back = call(state="absent")
    assert told("disable") == 1
    assert {"before": "enabled\n", "after": "disabled\n"}.items() <= given_back["diff"][-1].items()
    assert call(state="absent")["changed"] is False and not (tmp_path / "state").exists()


def test_unit_that_was_enabled_before_stays_so(host: Host) -> None:
    call(RAIL)
    call(state="absent")
    assert not [line for line in host.ran if line.startswith("systemctl")]


def test_module_waits_for_a_manager_that_sets_links_anew(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []

    def addresses() -> str:
        # What networkd has read makes it take an address away for a moment.
        reloaded = "networkctl reload" in host.ran
        looks.append(reloaded)
        return json.dumps([]) if reloaded and looks.count(True) == 1 else Host.addresses(host)

    monkeypatch.setattr(host, "addresses", addresses)
    monkeypatch.setattr(fabric_links, "SETTLE_S", 60)
    monkeypatch.setattr(links_host.time, "sleep", lambda _s: None)
    assert call(RAIL)["links"]["rail0"]["mtu"] == 9000
    # One look too early, two good ones, one to read back.
    assert looks.count(True) == 4


def test_protected_interface_is_refused_unless_it_is_the_management_link(host: Host) -> None:
    with pytest.raises(LinkError, match="eno1 carries the connection"):
        call({**MANAGEMENT, "management": False})
    with pytest.raises(LinkError, match="give rollback_s"):
        call(MANAGEMENT)
    assert host.ran == []


def test_management_change_waits_for_two_confirmations(host: Host, tmp_path: pathlib.Path) -> None:
    begun = call(MANAGEMENT, RAIL, rollback_s=60)
    assert begun["pending"] == {"netdev": "eno1", "addresses": ["10.20.0.6"], "rollback_s": 60}
    # Nothing is changed by the module itself, of the rails neither, and nothing is on disk.
    assert [line.split()[0] for line in host.ran if line.startswith(("ip", "systemd-run"))] == ["systemd-run"] * 2
    assert not (tmp_path / "networkd").exists() and not (tmp_path / "state").exists()
    host.ran.clear()
    with pytest.raises(LinkError, match="the host did not make the whole change"):
        call(MANAGEMENT, RAIL, confirm=True)
    # The clock goes on: the host takes half a change back as well.
    assert host.ran == []
    host.links["eno1"]["addresses"] = ["10.20.0.6/24"]
    host.ran.clear()
    kept = call(MANAGEMENT, RAIL, confirm=True)
    assert kept["confirmed"] is False
    assert (tmp_path / "networkd/05-gpu-fabric-eno1.network").exists() and host.links["rail0"]["mtu"] == 9000
    # The way back is open again before networkd reads the files.
    rearmed = next(index for index, line in enumerate(host.ran) if line.startswith("systemd-run"))
    assert rearmed < host.ran.index("networkctl reload")
    host.ran.clear()
    assert call(MANAGEMENT, RAIL, confirm=True)["confirmed"] is True
    # The clock is stopped after everything else.
    assert host.ran.index("systemctl stop gpu-fabric-links-apply.timer") > max(
        index for index, line in enumerate(host.ran) if line.startswith("systemd-run")
    )
    assert "systemctl stop gpu-fabric-links-rollback.timer" in host.ran[-3:]
    assert call(MANAGEMENT, RAIL, rollback_s=60)["changed"] is False
    # What goes back is the state before the change, not before the confirmation.
    assert call(RAIL, rollback_s=60)["pending"]["addresses"] == ["10.20.0.5"]


def test_change_that_was_taken_back_cannot_be_confirmed(host: Host, tmp_path: pathlib.Path) -> None:
    with pytest.raises(LinkError, match="no change of the management interface to confirm"):
        call(MANAGEMENT, confirm=True)
    call(MANAGEMENT, rollback_s=60)
    (tmp_path / "done").write_text("[]")
    with pytest.raises(LinkError, match="the host took it back"):
        call(MANAGEMENT, confirm=True)
    assert not (tmp_path / "networkd").exists()


def test_check_mode_shows_a_management_change_and_arms_nothing(host: Host) -> None:
    shown = call(MANAGEMENT, rollback_s=60, check_mode=True)
    assert shown["changed"] and "pending" not in shown
    assert host.ran == []


def test_networkmanager_sets_its_links_up_before_anything_else_does(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    manages(monkeypatch, "NetworkManager.service")
    call(RAIL)
    assert host.ran[:2] == ["nmcli connection reload", "nmcli --wait 30 connection up gpu-fabric-rail0"]
    assert "ip link set dev rail0 mtu 9000" in host.ran[2:]
    assert pathlib.Path(networkmanager.DIRECTORY, "gpu-fabric-rail0.nmconnection").stat().st_mode & 0o777 == 0o600
    assert not pathlib.Path(networkd.DIRECTORY).exists()


def test_management_interface_in_anothers_file_is_refused_where_files_add_up(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    manages(monkeypatch, "netplan")
    (tmp_path / "netplan").mkdir()
    # Neither a copy that netplan does not read nor a remark gives an interface addresses.
    (tmp_path / "netplan/50-cloud-init.yaml.bak").write_text("network: {ethernets: {eno1: {dhcp4: true}}}\n")
    (tmp_path / "netplan/00-site.yaml").write_text("network:\n  version: 2 # eno1 is for management\n")
    assert "pending" in call(MANAGEMENT, rollback_s=60)
    host.ran.clear()
    (tmp_path / "netplan/01-site.yaml").write_text("network:\n  ethernets:\n    eno1: {addresses: [10.20.0.5/24]}\n")
    with pytest.raises(LinkError, match=r"01-site.yaml sets up eno1"):
        call(MANAGEMENT, rollback_s=60)
    assert not [line for line in host.ran if line.startswith(("ip", "systemd-run"))]


def test_management_interface_is_looked_for_wherever_ifupdown_reads(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    interfaces = f"source {tmp_path}/ifupdown/*\nsource-directory {tmp_path}/site.d\n"
    found = managers.System(frozenset(), frozenset(["ifup"]), interfaces)
    monkeypatch.setattr(boot, "read_system", lambda _cli: found)
    (tmp_path / "site.d").mkdir()
    (tmp_path / "site.d/rails").write_text("auto rail0\niface rail0 inet dhcp\n")
    with pytest.raises(LinkError, match=r"site\.d/rails has rail0 ask a DHCP server, and without an answer ifupdown"):
        call(RAIL)
    (tmp_path / "site.d/rails").write_text("auto rail0\n# iface rail0 inet dhcp\niface rail0 inet manual\n")
    assert call(RAIL)["changed"]
    (tmp_path / "site.d/management").write_text("auto eno1\niface eno1 inet dhcp\n")
    with pytest.raises(LinkError, match=r"site\.d/management sets up eno1, and ifupdown would add its addresses"):
        call(MANAGEMENT, rollback_s=60)


@pytest.mark.parametrize(
    ("manager", "found", "refused"),
    [
        ("systemd-networkd.service", "/etc/systemd/network/00-all.network", True),
        ("systemd-networkd.service", "/etc/systemd/network/20-wired.network", False),
        ("systemd-networkd.service", "/run/systemd/network/10-netplan-all-en.network", False),
        ("netplan", "/run/systemd/network/10-netplan-all-en.network", True),
        ("netplan", "/run/systemd/network/10-netplan-rail0.network", False),
        ("netplan", "/etc/systemd/network/05-gpu-fabric-rail0.network", False),
        ("NetworkManager.service", "/etc/systemd/network/00-all.network", False),
    ],
)
def test_file_that_comes_before_ours_is_named_before_anything_is_set(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, manager: str, found: str, refused: bool
) -> None:
    manages(monkeypatch, manager)
    (tmp_path / "sys/class/net/rail0").mkdir(parents=True)
    (tmp_path / "sys/class/net/rail0/ifindex").write_text("7\n")
    (tmp_path / "netif").mkdir()
    (tmp_path / "netif/7").write_text(f"ADMIN_STATE=configured\nNETWORK_FILE={found}\nDNS=\n")
    if not refused:
        assert call(RAIL)["changed"]
        return
    with pytest.raises(LinkError, match=rf"rail0 is set up by {found}, .* no effect at boot; leave rail0 out"):
        call(RAIL)
    assert host.ran == []


def test_file_that_its_manager_does_not_take_is_put_back_before_anything_is_set(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    manages(monkeypatch, "netplan")
    call({**RAIL, "mtu": 4200})
    file = tmp_path / "netplan/60-gpu-fabric-rail0.yaml"
    before, links = file.read_text(), {name: dict(link) for name, link in host.links.items()}
    host.takes = lambda: "mtu: 9000" not in file.read_text()
    with pytest.raises(LinkError, match=r"No link was changed: netplan generate exited .* as it was before"):
        call(RAIL)
    assert file.read_text() == before and host.links == links
    assert call({**RAIL, "mtu": 4200})["changed"] is False
    # What netplan takes is there before the interface is touched, and networkd hears of it last.
    host.takes = lambda: True
    host.ran.clear()
    call(RAIL)
    assert [host.ran[0], host.ran[-1]] == ["netplan generate", "networkctl reload"]


def test_file_that_netplan_reads_after_ours_and_that_says_otherwise_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    manages(monkeypatch, "netplan")
    monkeypatch.setattr(system, "GENERATED", str(tmp_path))
    generated = tmp_path / "10-netplan-rail0.network"
    generated.write_text("[Link]\nMTUBytes=1500\n")
    with pytest.raises(LinkError, match=r"rail0 would have an MTU of 1500 at boot, wanted 9000: .* as it was before"):
        call(RAIL)
    assert host.links["rail0"]["mtu"] == 1500 and not (tmp_path / "netplan").exists()
    generated.write_text("[Link]\nMTUBytes=9000\n")
    assert call(RAIL)["changed"]


def test_file_of_somebody_else_of_the_same_name_is_kept_and_given_back(host: Host, tmp_path: pathlib.Path) -> None:
    (tmp_path / "networkd").mkdir()
    theirs = tmp_path / "networkd/05-gpu-fabric-rail0.network"
    theirs.write_text("[Match]\nName=rail0\n")
    theirs.chmod(0o640)
    shown = call(RAIL, check_mode=True)["diff"]
    assert any(item["before"].startswith("[Match]\nName=rail0") for item in shown)
    call(RAIL)
    assert "Address=10.224.0.11/24" in theirs.read_text() and call(RAIL)["changed"] is False
    given_back = call(state="absent")
    assert any(item["after"] == "[Match]\nName=rail0\n" for item in given_back["diff"])
    assert theirs.read_text() == "[Match]\nName=rail0\n"
    assert call(state="absent")["changed"] is False and not (tmp_path / "state").exists()


def test_run_after_one_that_was_cut_off_waits_for_the_way_back(host: Host, tmp_path: pathlib.Path) -> None:
    call(MANAGEMENT, rollback_s=60)
    host.links["eno1"]["addresses"] = ["10.20.0.6/24"]
    call(MANAGEMENT, RAIL, confirm=True)
    # The controller is gone; the files are written, and the clock still runs.
    host.says = "active"
    host.ran.clear()
    for params in ({}, {"rollback_s": 60}, {"state": "absent", "rollback_s": 60}):
        with pytest.raises(LinkError, match="eno1 and did not confirm that to the end"):
            call(*(() if "state" in params else (MANAGEMENT, RAIL)), **params)
    assert [line for line in host.ran if not line.startswith("systemctl is-active")] == []
    host.says = "inactive"
    assert call(MANAGEMENT, RAIL, confirm=True)["confirmed"] is True


def test_way_back_leads_to_the_manager_that_kept_the_interface_before(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    call(MANAGEMENT, rollback_s=60)
    host.links["eno1"]["addresses"] = ["10.20.0.6/24"]
    for _ in range(2):
        call(MANAGEMENT, confirm=True)
    file = tmp_path / "networkd/05-gpu-fabric-eno1.network"
    units = frozenset(["NetworkManager.service", "systemd-networkd.service"])
    both = managers.System(units, frozenset(["nmcli"]), None, running=units)
    monkeypatch.setattr(boot, "read_system", lambda _cli: both)
    call(MANAGEMENT, manager="networkmanager", rollback_s=60)
    plan = json.loads((tmp_path / "pending.json").read_text())
    assert plan["files"] == {
        str(tmp_path / "networkmanager/gpu-fabric-eno1.nmconnection"): None,
        str(file): file.read_text(),
    }
    assert ["networkctl", "reload"] in plan["restore"] and ["nmcli", "connection", "reload"] in plan["restore"]


def test_states_of_units_are_read_by_name_whichever_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "systemctl": "Id=NetworkManager.service\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=systemd-networkd.service\nActiveState=inactive\nUnitFileState=enabled\n\n"
        "Id=networking.service\nActiveState=inactive\nUnitFileState=\n",
        "nmcli": "eno1:connected\nens1f0np0:unmanaged\nwlan\\:0:unmanaged\nlo:connected (externally)\n",
    }
    cli = types.SimpleNamespace(
        which=lambda name: name == "nmcli", run=lambda argv, **_: Result(tuple(argv), 0, answers[argv[0]], "")
    )
    found = system.read_system(cli)  # type: ignore[arg-type]
    assert found.running == {"NetworkManager.service"}
    assert found.units == {"NetworkManager.service", "systemd-networkd.service"}
    assert found.unmanaged == {"ens1f0np0", "wlan:0"} and found.commands == {"nmcli"}


def test_name_servers_that_are_in_force_are_read_where_the_manager_has_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(system, "SYS", str(tmp_path / "sys"))
    monkeypatch.setattr(system, "NETIF", str(tmp_path / "netif"))
    (tmp_path / "sys/class/net/eno1").mkdir(parents=True)
    (tmp_path / "sys/class/net/eno1/ifindex").write_text("2\n")
    (tmp_path / "netif").mkdir()
    # A port and the name of a server's certificate may stand behind an address.
    (tmp_path / "netif/2").write_text(
        "ADMIN_STATE=configured\nDNS=10.20.0.53:53 [fd00:20::53]:53#dns.example 10.20.0.53\n"
    )
    said = "10.20.0.53 | 10.20.0.54\nfd00\\:20\\:\\:53\n"
    cli = types.SimpleNamespace(run=lambda argv, **_: Result(tuple(argv), 0, said, ""))
    names = {name: system.name_servers(cli, manager, "eno1") for name, manager in managers.MANAGERS.items()}  # type: ignore[arg-type]
    assert names == {
        "networkmanager": ("10.20.0.53", "10.20.0.54", "fd00:20::53"),
        "netplan": ("10.20.0.53", "fd00:20::53"),
        "networkd": ("10.20.0.53", "fd00:20::53"),
        "ifupdown": (),
    }


def test_management_interface_keeps_its_name_servers(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "name_servers", lambda *_: ("10.20.0.53",))
    call(MANAGEMENT, RAIL, rollback_s=60)
    host.links["eno1"]["addresses"] = ["10.20.0.6/24"]
    call(MANAGEMENT, RAIL, confirm=True)
    assert "DNS=10.20.0.53\n" in pathlib.Path(networkd.DIRECTORY, "05-gpu-fabric-eno1.network").read_text()
    assert "DNS=" not in pathlib.Path(networkd.DIRECTORY, "05-gpu-fabric-rail0.network").read_text()
