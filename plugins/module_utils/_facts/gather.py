# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""All facts of one host, section by section. A section that fails is a problem, never the end of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import (
    driver,
    files,
    firewall,
    gpus,
    host,
    kernel_log,
    limits,
    link_config,
    link_downs,
    modules,
    netdevs,
    nics,
    packages,
    pci,
    pci_lspci,
    qos,
    rdma,
    rdma_tools,
    recorded,
    routes,
    services,
    sysctl,
    tools,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import nic_config as nic_config_facts
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["SCHEMA", "gather"]

SCHEMA = 1


def gather(
    source: Source, sysctl_keys: Iterable[str] = (), nic_config: bool = False, port_settings: bool = False
) -> dict[str, Any]:
    """The `gpu_fabric` facts. A key is absent where nothing could be known."""
    run = _Run(source)
    facts = run.facts
    run.tools.prefetch()
    source.prefetch(
        [
            *services.COMMANDS,
            netdevs.ADDRESSES,
            *routes.COMMANDS,
            *host.COMMANDS,
            *firewall.COMMANDS,
            *limits.COMMANDS,
            *kernel_log.COMMANDS,
        ]
    )
    run.section("host", lambda: host.collect(source))
    run.section("pci", lambda: pci.collect(source))
    run.section("pci", lambda: pci_lspci.merge(run.tools, facts.get("pci", {})))
    run.section("rdma_devices", lambda: rdma.collect(source))
    run.section("netdevs", lambda: netdevs.collect(source))
    run.merge("rdma_devices", lambda: _merge_rdma(run))
    run.section("link_config", lambda: link_config.collect(source))
    run.merge("routes", lambda: routes.collect(source))
    run.section("ssh", lambda: routes.ssh(source, facts.get("netdevs", {}), facts.get("routes", [])))
    run.section("packages", lambda: packages.collect(source, run.tools))
    run.section("modules", lambda: modules.collect(source, run.tools))
    run.section("dkms", lambda: modules.dkms(source, run.tools))
    run.section("ofed", lambda: modules.ofed(run.tools))
    run.section("services", lambda: services.collect(source))
    run.section("limits", lambda: limits.collect(source))
    run.section("sysctl", lambda: sysctl.collect(source, run.tools, facts.get("netdevs", {}), sysctl_keys))
    run.section("sysctl_files", lambda: sysctl.files(source))
    run.section("files", lambda: files.collect(source))
    run.section("mounts", lambda: files.mounts(source))
    run.section("firewall", lambda: firewall.collect(source, facts.get("services", {})))
    run.section("tools", lambda: tools.installed(source))
    run.section("gpus", lambda: gpus.collect(run.tools, facts.get("pci", {})))
    run.ask("nvidia_smi_topo")  # distances, which the plan compares with those of the PCI tree
    run.section("nvswitches", lambda: gpus.nvswitches(facts.get("pci", {})))
    run.section("gpu_processes", lambda: gpus.processes(run.tools))
    run.section("driver", lambda: driver.collect(source, run.tools, facts.get("modules", {}), facts.get("packages")))
    run.section(
        "fabric_manager", lambda: driver.fabric_manager(source, facts.get("services", {}), facts.get("packages"))
    )
    run.section("qos", lambda: qos.collect(source, run.tools, _fabric_netdevs(facts)))
    run.merge("netdevs", lambda: _merge_netdevs(run, port_settings))
    if nic_config:
        run.section("nic_config", lambda: nic_config_facts.collect(source, run.tools, facts.get("pci", {})))
    elif not source.live:
        run.section("nic_config", lambda: nic_config_facts.collect(source, run.tools, {}))
    run.section("own_link_downs", lambda: link_downs.collect(source))
    run.section("kernel_log", lambda: kernel_log.collect(source, run.tools))
    if not source.live:
        run.section("recorded", lambda: recorded.collect(source))
    return run.result()


class _Run:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.tools = tools.Tools(source)
        self.facts: dict[str, Any] = {"schema": SCHEMA}
        self.problems: list[dict[str, Any]] = []

    def section(self, name: str, collect: Callable[[], Optional[Any]]) -> None:
        value = self._guarded(name, collect)
        # An empty answer of a recording means that nothing was recorded; on a live host it means that there is none.
        if value is not None and (value or self.source.live):
            self.facts[name] = value

    def merge(self, name: str, collect: Callable[[], Optional[dict[str, Any]]]) -> None:
        self.facts.update(self._guarded(name, collect) or {})

    def ask(self, key: str) -> None:
        """For the outputs alone."""
        self._guarded(key, lambda: self.tools.value(key))

    def _guarded(self, name: str, collect: Callable[[], Any]) -> Any:
        try:
            return collect()
        except Exception as exc:
            self.problems.append(
                {
                    "source": name,
                    "line": 0,
                    "text": f"{type(exc).__name__}: {exc}"[:200],
                    "reason": "This section of the facts could not be gathered; please report it as a defect.",
                }
            )
            return None

    def result(self) -> dict[str, Any]:
        self.facts["outputs"] = self.tools.outputs
        self.facts["problems"] = [
            *self.problems,
            *self.tools.problems,
            *({"line": 0, "text": "", **entry} for entry in self.source.unread),
        ]
        return self.facts


def _fabric_netdevs(facts: dict[str, Any]) -> dict[str, str]:
    """Interface to link layer, of the ports of cards; not of Soft-RoCE."""
    return {
        netdev: port.get("link_layer", "Ethernet")
        for device in facts.get("rdma_devices", {}).values()
        if not device.get("software")
        for port in device.get("ports", {}).values()
        for netdev in port.get("netdevs", [])
    }


def _merge_netdevs(run: _Run, port_settings: bool) -> dict[str, Any]:
    links = run.facts.pop("netdevs", {})
    nics.merge(run.source, run.tools, links, _fabric_netdevs(run.facts), port_settings)
    return {"netdevs": links} if links or run.source.live else {}


def _merge_rdma(run: _Run) -> dict[str, Any]:
    devices = run.facts.setdefault("rdma_devices", {})
    links = run.facts.setdefault("netdevs", {})
    rdma_tools.merge(run.source, run.tools, devices, links)
    both = {key: run.facts.pop(key) for key in ("rdma_devices", "netdevs")}
    return {key: value for key, value in both.items() if value or run.source.live}
