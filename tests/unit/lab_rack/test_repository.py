# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in packages: consistent among themselves, and the same bytes each time."""

from __future__ import annotations

import re
import shutil
import subprocess

import catalogue
import deb
import pytest
import toolkit

NVIDIA = catalogue.nvidia()
MELLANOX = catalogue.mellanox()
KNOWN_VERSIONS = {(package.name, package.version) for package in NVIDIA + MELLANOX}
RELATION = re.compile(r"(?P<name>[a-z0-9.+-]+)(?: \((?P<operator>[<>=]+) (?P<version>[^)]+)\))?\Z")


def provided() -> set[tuple[str, str]]:
    found = set(KNOWN_VERSIONS)
    for package in NVIDIA + MELLANOX:
        for text in filter(None, package.relations.get("Provides", "").split(", ")):
            match = RELATION.match(text)
            found.add((match["name"], match["version"]))
    return found


def test_names_and_versions_are_unique():
    names = [package.filename for package in NVIDIA + MELLANOX]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("package", NVIDIA + MELLANOX, ids=lambda p: f"{p.name}={p.version}")
def test_what_a_package_depends_on_is_there(package):
    there = provided()
    for text in filter(None, package.relations.get("Depends", "").split(", ")):
        match = RELATION.match(text)
        assert match, text
        if match["operator"] == "=":
            assert (match["name"], match["version"]) in there
        else:
            assert match["name"] in {name for name, _version in there}


def versions(name: str) -> set[str]:
    return {version for known, version in KNOWN_VERSIONS if known == name}


def test_everything_that_a_pin_decides_about_has_several_versions():
    for name in (
        "nvidia-open",
        "cuda-drivers",
        "nvidia-kernel-open-dkms",
        "libnvidia-ml1",
        "nvidia-fabricmanager",
        "libnccl2",
        "libnccl-dev",
        "cuda-toolkit-13-0",
        "nvlsm",
        "libnvsdm",
        "doca-ofed",
        "gdrcopy",
    ):
        assert len(versions(name)) >= 2, name


def test_fabric_manager_has_the_name_of_its_branch():
    assert all(version.startswith("580.") for version in versions("nvidia-fabricmanager"))
    assert versions("nvidia-fabricmanager-570") == {"570.172.08-1"}
    rivals = next(p for p in NVIDIA if p.name == "nvidia-fabricmanager").relations["Conflicts"]
    assert rivals == "nvidia-fabricmanager-570, nvidia-fabricmanager-575, nvidia-fabricmanager-580"


def test_flavours_exclude_each_other():
    by_name = {package.name: package for package in NVIDIA}
    for name, other in (("nvidia-kernel-open-dkms", "nvidia-kernel-dkms"), ("nvidia-dkms-580-open", "nvidia-dkms-580")):
        assert by_name[name].relations["Conflicts"] == other
        assert by_name[other].relations["Conflicts"] == name


def test_nccl_says_for_which_cuda_it_was_built():
    assert "2.28.3-1+cuda13.0" in versions("libnccl2") & versions("libnccl-dev")
    header = next(p for p in NVIDIA if p.name == "libnccl-dev" and p.version == "2.28.3-1+cuda13.0").files
    assert "#define NCCL_VERSION_CODE 22803" in header["/usr/include/nccl.h"]


def test_nvcc_tells_the_toolkits_release():
    package = toolkit.cuda("13.0", "13.0.2-1", "13.0.88")
    done = subprocess.run(
        ["sh", "-c", package.files["/usr/local/cuda-13.0/bin/nvcc"], "nvcc", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "release 13.0, V13.0.88" in done.stdout


@pytest.mark.parametrize("package", [p for p in NVIDIA + MELLANOX if p.scripts], ids=lambda p: f"{p.name}={p.version}")
def test_maintainer_scripts_are_valid_shell(package):
    for body in package.scripts.values():
        subprocess.run(["sh", "-n", "-c", body], check=True)


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not installed")
def test_a_package_is_the_same_bytes_each_time(tmp_path):
    package = next(p for p in NVIDIA if p.name == "nvidia-fabricmanager")
    built = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        built.append(deb.build(package, tmp_path / name, tmp_path / f"{name}-scratch").read_bytes())
    assert built[0] == built[1]
    shown = subprocess.run(
        ["dpkg-deb", "--field", str(tmp_path / "one" / package.filename), "Package", "Version", "Conflicts"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"Version: {package.version}" in shown
