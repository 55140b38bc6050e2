#!/usr/bin/python3
# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the lab's package repositories; runs in a container of the node image, so dpkg, apt and gpg are the node's own.

Result, under --out, in www/:
  nvidia/          signed flat repository of stand-in packages, key in lab-nvidia.asc
  nvidia-rotated/  the same packages, signed with another key, as after a key rotation that a host has not heard of
  doca/            likewise
  debian/          the Debian packages that nodes may install, with all that they depend on; key in lab-debian.gpg
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import catalogue
import toolkit
from deb import EPOCH, Package, build

HERE = Path(__file__).resolve().parent
SOURCES = Path("/usr/lib/gpu-fabric-lab/apt-sources")


def call(*argv: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
    return subprocess.run(
        argv, input=stdin, check=True, stdout=subprocess.PIPE, env={**os.environ, **(env or {})}
    ).stdout


class Keyring:
    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(mode=0o700, parents=True, exist_ok=True)

    def gpg(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return call("gpg", "--homedir", str(self.home), "--batch", "--quiet", "--no-tty", *arguments, stdin=stdin)

    def make(self, name: str) -> str:
        """Create a signing key; returns its fingerprint."""
        user = f"Railyard lab {name} <{name}@example.invalid>"
        self.gpg("--passphrase", "", "--quick-generate-key", user, "rsa3072", "sign", "never")
        rows = self.gpg("--with-colons", "--list-keys", user).decode().splitlines()
        return next(row.split(":")[9] for row in rows if row.startswith("fpr:"))


def index(directory: Path, keyring: Keyring, fingerprint: str, *, label: str, origin: str, suite: str = "") -> None:
    """Write Packages, Release and InRelease of a flat repository."""
    packages = call("sh", "-c", 'cd "$1" && apt-ftparchive packages .', "sh", str(directory))
    (directory / "Packages").write_bytes(packages)
    call("gzip", "-9nkf", str(directory / "Packages"))
    fields = {"Origin": origin, "Label": label, "Suite": suite, "Codename": suite, "Architectures": "amd64"}
    options = [
        part for key, value in fields.items() if value for part in ("-o", f"APT::FTPArchive::Release::{key}={value}")
    ]
    for name in ("Release", "InRelease", "Release.gpg"):
        (directory / name).unlink(missing_ok=True)
    release = call("sh", "-c", 'cd "$1" && shift && apt-ftparchive "$@" release .', "sh", str(directory), *options)
    (directory / "Release").write_bytes(release)
    sign = ("--digest-algo", "SHA512", "--local-user", fingerprint, "--passphrase", "")
    (directory / "InRelease").write_bytes(keyring.gpg(*sign, "--clearsign", stdin=release))
    (directory / "Release.gpg").write_bytes(keyring.gpg(*sign, "--armor", "--detach-sign", stdin=release))


def build_all(packages: list[Package], directory: Path) -> None:
    directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        for package in packages:
            build(package, directory, Path(scratch))


def link_all(source: Path, directory: Path) -> None:
    directory.mkdir()
    for path in source.glob("*.deb"):
        os.link(path, directory / path.name)


def wanted_from_debian() -> list[str]:
    return [line for line in (HERE / "debian.txt").read_text().split("\n") if line and not line.startswith("#")]


def download_from_debian(directory: Path) -> None:
    """The packages of debian.txt and what they need beyond this image, with apt and its own checks."""
    (directory / "partial").mkdir(parents=True)
    options = ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={SOURCES}",
               "-o", f"Dir::Cache::archives={directory}/", "-o", "APT::Sandbox::User=root",
               "-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3"]  # fmt: skip
    call("apt-get", "-q", *options, "update")
    call("apt-get", "-q", "-y", *options, "--download-only", "install", *wanted_from_debian())
    (directory / "partial").rmdir()
    (directory / "lock").unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--suite", required=True)
    options = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = str(EPOCH)
    out: Path = options.out
    keyring = Keyring(out / "gnupg")  # beside what is served, not in it
    keys = {name: keyring.make(name) for name in ("lab-nvidia", "lab-nvidia-rotated", "lab-debian")}

    www = out / "www"
    nvidia = www / "nvidia"
    build_all(catalogue.nvidia() + toolkit.keyring(keyring.gpg("--export", keys["lab-nvidia"])), nvidia)
    link_all(nvidia, www / "nvidia-rotated")
    doca = www / "doca"
    build_all(catalogue.mellanox(), doca)
    index(nvidia, keyring, keys["lab-nvidia"], label="NVIDIA CUDA", origin="NVIDIA")
    index(www / "nvidia-rotated", keyring, keys["lab-nvidia-rotated"], label="NVIDIA CUDA", origin="NVIDIA")
    index(doca, keyring, keys["lab-nvidia"], label="Mellanox Technologies", origin="Mellanox Technologies")
    for directory, key in (
        (nvidia, "lab-nvidia"),
        (doca, "lab-nvidia"),
        (www / "nvidia-rotated", "lab-nvidia-rotated"),
    ):
        (directory / "lab-nvidia.asc").write_bytes(keyring.gpg("--armor", "--export", keys[key]))
        (directory / "lab-nvidia.fingerprint").write_text(keys[key] + "\n")

    debian = www / "debian"
    download_from_debian(debian)
    index(debian, keyring, keys["lab-debian"], label="Debian", origin="Debian", suite=options.suite)
    (debian / "lab-debian.gpg").write_bytes(keyring.gpg("--export", keys["lab-debian"]))
    call("gpgconf", "--homedir", str(keyring.home), "--kill", "all")


main()
