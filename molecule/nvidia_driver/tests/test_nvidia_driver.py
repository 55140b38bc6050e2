"""One version from kernel module to Fabric Manager, held, loaded and serving."""

from __future__ import annotations

import re


def loaded_version(host) -> str:
    text = host.file("/proc/driver/nvidia/version").content_string
    return re.search(r"\b(\d+\.\d+\.\d+)\b", text).group(1)


def test_loaded_module_and_library_agree(host):
    reported = host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").split()
    assert set(reported) == {loaded_version(host)}
    assert len(reported) == 8


def test_fabric_manager_has_the_version_of_the_driver_and_runs(host):
    installed = host.check_output("dpkg-query -W -f '${Version}' nvidia-fabricmanager")
    assert installed.split("-")[0] == loaded_version(host)
    assert host.service("nvidia-fabricmanager").is_running
    assert host.service("nvidia-fabricmanager").is_enabled


def test_driver_set_is_held(host):
    held = set(host.check_output("apt-mark showhold").split())
    assert any(name.startswith("nvidia-fabricmanager") for name in held)
    assert any(name.startswith("libnvidia") for name in held)


def test_modules_come_at_boot_and_nouveau_does_not(host):
    assert "nvidia" in host.file("/etc/modules-load.d/gpu-fabric-nvidia.conf").content_string
    assert "blacklist nouveau" in host.file("/etc/modprobe.d/gpu-fabric-nvidia.conf").content_string


def test_repository_is_signed(host):
    sources = host.check_output("cat /etc/apt/sources.list.d/railyard-nvidia.sources")
    assert "Signed-By:" in sources
    assert "trusted" not in sources.lower()
