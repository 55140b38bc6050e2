"""ansible-playbook against the machines, and what they are set to afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from image_cache import CACHE, ROOT
from machines import Machine, Pair

sys.path.insert(0, str(ROOT / "tests/site"))

from rack import Run

BIN = Path(sys.executable).parent
PROBE = (Path(__file__).parent / "probe.py").read_text()


def playbook(*arguments: str, playbook: str = "site.yml") -> Run:
    command = ["ansible-playbook", playbook, "-i", "tests/vm/inventory", "-e", f"gpu_fabric_report_dir={CACHE}/reports"]
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        # An emulated processor is slow, and this machine may have more to do.
        "ANSIBLE_TIMEOUT": "60",
    }
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    try:
        data = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        data = {}
    return Run(done.returncode, done.stdout, done.stderr, data)


def rdma(*arguments: str) -> Run:
    return playbook("--tags", "rdma", *arguments)


def plan_of(run: Run) -> dict[str, Any]:
    """The plan that a run made, from its own output."""
    return next(result["plan"] for _, _, result in run.results() if "plan" in result)


def state_of(machine: Machine, keys: list[str] | None = None) -> dict[str, Any]:
    return json.loads(machine.run(["python3", "-", *(keys or [])], stdin=PROBE))


def not_as_planned(state: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    """What the plan of one host says and the machine does not have, one sentence each."""
    wrong = []
    for link in plan["links"] + plan["bonds"]:
        name = link["netdev"]
        now = state["links"].get(name, {})
        for member in link["bond"]["members"] if "bond" in link else ():
            if state["links"][member]["master"] != name:
                wrong.append(f"{member} belongs to {state['links'][member]['master']}, planned {name}")
        if now.get("mtu") != link["mtu"] or not now.get("up"):
            wrong.append(f"{name}: MTU {now.get('mtu')}, up {now.get('up')}; planned MTU {link['mtu']}, up")
        wrong += [f"{name}: no address {item}" for item in link["addresses"] if item not in now.get("addresses", [])]
        for route in link["routes"]:
            wanted = [str(route["table"]), route["dst"], route.get("via") or "", name, route.get("src") or ""]
            if wanted not in state["routes"]:
                wrong.append(f"{name}: no route {wanted} in {state['routes']}")
        for rule in link["rules"]:
            wanted = [rule["priority"], rule["from"].removesuffix("/32"), str(rule["table"])]
            if wanted not in state["rules"]:
                wrong.append(f"{name}: no rule {wanted} in {state['rules']}")
    for key, entry in plan["sysctl"].items():
        if state["sysctl"].get(key) != entry["value"]:
            wrong.append(f"{key} is {state['sysctl'].get(key)}, planned {entry['value']}")
    wrong += [f"{name} is not loaded" for name in plan["modules"]["load"] if name not in state["modules"]]
    if plan["limits"]["memlock"] == "unlimited":
        if state["limits"]["sshd"]["memlock"] != ["unlimited", "unlimited"]:
            wrong.append(f"sshd may lock {state['limits']['sshd']['memlock']}")
        if not state["limits"]["login_memlock_unlimited"]:
            wrong.append("a login may not lock memory without limit")
        if state["limits"]["systemd"] not in ("infinity", str(2**64 - 1)):
            wrong.append(f"systemd's DefaultLimitMEMLOCK is {state['limits']['systemd']}")
    nofile = str(plan["limits"]["nofile"])
    if state["limits"]["sshd"]["nofile"] != [nofile, nofile]:
        wrong.append(f"sshd may open {state['limits']['sshd']['nofile']} files, planned {nofile}")
    return wrong


def differences(before: dict[str, Any], after: dict[str, Any], restarted: bool = False) -> list[str]:
    """Where two states of a machine differ, one line each.

    Until it is ``restarted``, modules stay loaded and a running sshd keeps its limits, by contract.
    """
    found = []
    for part in before:
        old, new = before[part], after[part]
        if part == "modules":
            # Not every boot loads every driver at the same time; what counts is that none is left behind.
            found += [f"module {name} is loaded" for name in new if restarted and name not in old]
        elif isinstance(old, dict):
            keys = sorted({*old, *new} - (set() if restarted or part != "limits" else {"sshd"}))
            found += [f"{part} {key}: {old.get(key)} -> {new.get(key)}" for key in keys if old.get(key) != new.get(key)]
        elif old != new:
            found.append(f"{part}: gone {[x for x in old if x not in new]}, new {[x for x in new if x not in old]}")
    return found


def bond_options(machine: Machine, name: str) -> dict[str, str]:
    """What the kernel says of a bond, in its own words."""
    base = f"/sys/class/net/{name}/bonding"
    keys = ("mode", "miimon", "lacp_rate", "xmit_hash_policy", "active_slave")
    answer = machine.run(f"cd {base} && for key in {' '.join(keys)}; do echo $key $(cat $key); done")
    return {words[0]: words[1] if len(words) > 1 else "" for words in map(str.split, answer.splitlines())}


def sent_bytes(machine: Machine, members: list[str]) -> dict[str, int]:
    answer = machine.run("; ".join(f"cat /sys/class/net/{name}/statistics/tx_bytes" for name in members))
    return dict(zip(members, map(int, answer.split())))


def measure(pair: Pair, plan: dict[str, Any], rail: int) -> str:
    """ib_write_bw between the machines over one rail; what the client says."""
    server, client = pair.machines
    ends = {machine.name: plan["hosts"][machine.name]["rails"][rail] for machine in pair.machines}
    target = ends[server.name]["ipv4"].partition("/")[0]
    options = {}
    for machine in pair.machines:
        end = ends[machine.name]
        gid = gid_index(machine, end["hca"], end["ipv4"].partition("/")[0])
        tos = plan["rack"]["roce"]["perftest_tos"]
        options[machine.name] = (
            f"-d {end['hca']} -x {gid} --tclass {tos} -s 4096 -n 200 -F --report_gbits -p {18515 + rail}"
        )
    unit = f"bandwidth-server-{rail}"
    server.run(f"systemd-run --quiet --collect --unit={unit} ib_write_bw {options[server.name]}")
    server.run(
        f"for i in $(seq 60); do ss -Hltn sport = :{18515 + rail} | grep -q . && exit 0; sleep 0.5; done; exit 1"
    )
    return client.run(f"timeout 120 ib_write_bw {options[client.name]} {target}")


def gid_index(machine: Machine, device: str, address: str) -> int:
    """The RoCE v2 entry of a device's GID table that stands for an IPv4 address."""
    base = f"/sys/class/infiniband/{device}/ports/1"
    parts = [int(part) for part in address.split(".")]
    gid = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*parts)
    # The table has a thousand entries, most of them empty.
    for path in machine.run(f"cd {base}/gids && grep -lx {gid} *", check=False).split():
        if machine.run(f"cat {base}/gid_attrs/types/{path}").strip() == "RoCE v2":
            return int(path)
    raise AssertionError(f"{machine.name}: {device} has no RoCE v2 GID of {address}")
