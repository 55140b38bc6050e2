# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a refusal for the sake of the links says: ports that have the same to be told of them stand together."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import program
from ansible_collections.railyard.gpu_fabric.plugins.modules.nic_settings import refuse

MASK = [n == 3 for n in range(8)]


def todo(netdev: str, *steps: tuple[str, t.Any, t.Any, str]) -> program.Todo:
    made = [
        program.Step(t.cast(t.Any, types.SimpleNamespace(name=name, disruption=cost)), before, after, before)
        for name, before, after, cost in steps
    ]
    return program.Todo(program.Port(netdev, None, 1, None), made, [])


PFC = ("pfc", [False] * 8, MASK, "linkflap")
RAILS = [f"ens{n}np0" for n in range(1, 9)]


def refused(todos: list[program.Todo], allowed: str = "none", processes: t.Sequence[str] = ()) -> str:
    with pytest.raises(Failure) as failure:
        refuse(todos, allowed, list(processes))
    return str(failure.value)


def test_ports_that_need_the_same_are_told_once() -> None:
    told = refused([todo(rail, PFC) for rail in RAILS])
    assert f"(8 ports ({', '.join(RAILS)}): pfc is 0,0,0,0,0,0,0,0, wanted 0,0,0,1,0,0,0,0)" in told
    assert told.count("pfc is") == 1 and "gpu_fabric_allow_disruption: linkflap" in told


def test_a_port_that_differs_stands_alone_with_all_that_it_needs() -> None:
    rings = ("rings", {"rx": 1024}, {"rx": 8192}, "linkflap")
    calm = ("trust", "pcp", "dscp", "none")
    told = refused([todo("ens1", PFC, calm), todo("ens2", PFC), todo("ens3", PFC, rings), todo("ens4", calm)])
    assert "2 ports (ens1, ens2): pfc is" in told and "; ens3: pfc is" in told and "rings is" in told
    assert "ens4" not in told and "trust" not in told


def test_a_job_on_the_gpus_is_named_beside_the_ports() -> None:
    told = refused([todo(rail, PFC) for rail in RAILS], "linkflap", ["4711 python3"])
    assert "8 ports (" in told and "4711 python3. Drain the node first" in told


def test_what_disrupts_nothing_is_not_refused() -> None:
    refuse([todo("ens1", ("trust", "pcp", "dscp", "none"))], "none", ["4711 python3"])
    refuse([todo("ens1", PFC)], "linkflap", [])
