# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What limits a link limits the result; client and server are two processes with a socket between them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from railyard_lab import interfaces, perf, rdma_path
from railyard_lab import state as state_file


def end(host, rdma="mlx5_3", traffic_class=106):
    state = host.state
    return perf.endpoint(state, state_file.nic_by(state, "rdma", rdma), interfaces.current(state), traffic_class, None)


@pytest.fixture
def pair(host):
    host.interface("enp64s0np0", mtu=9000, addresses=["10.3.1.1/24"])
    here = end(host)
    return host, here, {**here, "host": "gpu-02"}


def test_a_good_link_passes_the_field_s_threshold(pair):
    _host, here, there = pair
    assert 384 <= perf.link_gbps(here, there) <= 400


@pytest.mark.parametrize(
    ("change", "low", "high"),
    [
        ({"rate_gbps": 200}, 190, 200),
        ({"mtu": 1024}, 350, 384),
        ({"pcie_gbps": 252.0}, 220, 252),
        ({"pfc": True}, 200, 384),
        ({"loss": 0.4}, 150, 250),
    ],
)
def test_either_end_can_spoil_it(pair, change, low, high):
    _host, here, there = pair
    for one, other in ((here, {**there, **change}), ({**here, **change}, there)):
        assert low <= perf.link_gbps(one, other) < high


def test_pfc_counts_for_the_priority_of_the_packets(pair):
    host, _here, _there = pair
    host.run("mlnx_qos", "-i", "enp64s0np0", "--pfc", "0,0,0,1,0,0,0,0", "--trust", "dscp")
    assert end(host, traffic_class=106)["priority"] == 3 and end(host, traffic_class=106)["pfc"]
    assert end(host, traffic_class=0)["priority"] == 0 and not end(host, traffic_class=0)["pfc"]


def test_the_best_gid_is_routable_version_two(pair):
    host, here, _there = pair
    assert (here["gid"]["index"], perf.ipv4_of(here["gid"])) == (3, "10.3.1.1")
    host.interface("enp64s0np0", addresses=[])
    host.interface("enp64s0np0", addresses=["fe80::99/64", "10.3.1.1/24"])
    assert end(host)["gid"]["index"] == 5


def test_gpu_memory_needs_a_way_and_a_near_nic(make_host):
    host = make_host(tree=True)
    host.lab("driver", "install", "--version", "580.95.05")
    state = host.state
    near, far = (state_file.nic_by(state, "rdma", name) for name in ("mlx5_3", "mlx5_11"))
    gpu = state["gpus"][1]
    assert perf.gpudirect(state, near, gpu, dmabuf=True) == (True, 0.975)
    assert perf.gpudirect(state, near, gpu, dmabuf=False) == (False, 0.0)
    assert perf.gpudirect(state, far, gpu, dmabuf=True)[1] < 0.5
    host.lab("fault", "acs_on")
    assert perf.gpudirect(host.state, near, gpu, dmabuf=True)[1] < 0.5


def _spawn(host, *argv):
    environment = {**os.environ, "PYTHONPATH": str(Path(perf.__file__).parents[1])}
    code = (
        f"import sys; from railyard_lab.toolbox import run; sys.argv = {['ib_write_bw', *argv]!r}; run('ib_write_bw')"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)


def _free_port():
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


def test_server_and_client_meet(pair, tmp_path):
    host, _here, _there = pair
    port, report = _free_port(), tmp_path / "out.json"
    common = ("-p", str(port), "-s", "65536", "-q", "2", "--report_gbits")
    server = _spawn(host, "-d", "mlx5_3", *common)
    for _ in range(100):
        client = _spawn(host, "-d", "mlx5_3", *common, "--out_json", f"--out_json_file={report}", "localhost")
        out = client.communicate(timeout=60)[0]
        if "Couldn't connect" not in out:
            break
    assert client.returncode == 0, out
    row = next(line for line in out.splitlines() if line.startswith(" 65536"))
    assert 384 <= float(row.split()[3]) <= 400 and row.split()[1] == "10000"
    assert server.wait(timeout=60) == 0
    document = json.loads(report.read_text())
    assert document["results"]["BW_average"] == float(row.split()[3])
    assert document["test_info"]["Device"] == "mlx5_3" and document["test_info"]["Mtu"] == 4096


def test_nobody_there(host):
    answer = host.run("ib_write_bw", "-d", "mlx5_0", "-p", str(_free_port()), "127.0.0.1")
    assert answer.rc == 1 and answer.out.startswith("Couldn't connect to 127.0.0.1:")


def test_a_port_that_is_down_measures_nothing(host):
    host.interface("enp64s0np0", carrier=False)
    answer = host.run("ib_write_bw", "-d", "mlx5_3", "127.0.0.1")
    assert answer.rc == 1 and "state is Down" in answer.out


def _loopback_end(name, address):
    octets = bytes(int(part) for part in address.split(".")).hex()
    gid = {
        "index": 3,
        "type": "RoCE v2",
        "netdev": "lo",
        "gid": f"0000:0000:0000:0000:0000:ffff:{octets[:4]}:{octets[4:]}",
    }
    return {"host": name, "netdev": "lo", "link_layer": "Ethernet", "mtu": 4096, "gid": gid}


@pytest.mark.parametrize("answers", [True, False])
def test_packets_must_arrive(answers):
    here, there = _loopback_end("gpu-01", "127.0.71.1"), _loopback_end("gpu-02", "127.0.71.2")
    channel = rdma_path._bound(here, rdma_path.PORT)
    if channel is None:
        pytest.skip("this user may not bind a socket to an interface")
    channel.close()
    ours, theirs = socket.socketpair()
    with rdma_path.listener(there) as wire:
        thread = threading.Thread(target=rdma_path.answer, args=(wire if answers else None, theirs))
        thread.start()
        assert rdma_path.reaches(here, there, timeout=0.6) is answers
        ours.sendall(b"x")
        thread.join()


def test_messages_do_not_run_into_each_other():
    one, other = socket.socketpair()
    rdma_path.send(one, {"a": 1})
    rdma_path.send(one, {"b": 2})
    assert rdma_path.receive(other) == {"a": 1}
    assert rdma_path.receive(other) == {"b": 2}
    one.close()
    with pytest.raises(ConnectionError):
        rdma_path.receive(other)


def test_two_hosts_are_limited_by_nvlink_and_then_by_their_rails(pair):
    from railyard_lab import nccl_rack

    _host, here, there = pair
    rack = [{"gpus": 8, "ends": [here] * 8}, {"gpus": 8, "ends": [there] * 8}]
    assert nccl_rack.busbw(rack, 470.0, 448.0) == 448.0
    slow = [{"gpus": 8, "ends": [{**here, "rate_gbps": 100}] * 8}, rack[1]]
    assert nccl_rack.busbw(slow, 470.0, 448.0) < 250
    assert nccl_rack.busbw([{"gpus": 8, "ends": []}] * 2, 470.0, 448.0) < 5


def test_more_gpus_than_there_are(host):
    host.lab("driver", "install", "--version", "580.95.05")
    host.change(lambda state: state["fabric_manager"].update(version="580.95.05", trained="580.95.05"))
    host.lab("fault", "gpu_missing")
    answer = host.run("all_reduce_perf", "-g", "8")
    assert answer.rc == 2 and "'invalid device ordinal'" in answer.out
    assert host.run("all_reduce_perf", "-g", "7").rc == 0
