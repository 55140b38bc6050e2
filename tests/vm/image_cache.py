"""The machines' disk: built once from Debian packages, kept under a name made of what it consists of."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/vm"
SOURCE = Path(__file__).parent / "image"
SUITE = "bookworm"
# The commands that the tests need on this machine, and the Debian packages that have them.
NEEDED = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


class Unavailable(Exception):
    """Why no machine can be made here; the message becomes the reason of the skipped tests."""


class Image(NamedTuple):
    """Files of one build."""

    disk: Path
    kernel: Path
    initrd: Path
    host_key: str
    key: Path


def install_packages() -> None:
    """Install what is missing, as root on Debian and Ubuntu; elsewhere say what to install."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = sorted({package for command, package in NEEDED.items() if shutil.which(command, path=path) is None})
    if not missing:
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise Unavailable(f"virtual machines need {' '.join(missing)}: sudo apt-get install {' '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print(f"vm: installing {' '.join(missing)}", flush=True)
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        done = subprocess.run(
            ["apt-get", "--quiet=2", *command], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Unavailable(f"apt-get {command[0]} {' '.join(missing)} failed: {done.stderr.strip()}")


def digest() -> str:
    """Name the image after everything that it is made of."""
    found = hashlib.sha256(SUITE.encode())
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file():
            found.update(f"{path.relative_to(SOURCE)}\0{path.stat().st_mode & 0o111}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def image() -> Image:
    """Return the image, built where there is none yet."""
    install_packages()
    CACHE.mkdir(parents=True, exist_ok=True)
    key = CACHE / "id_ed25519"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not key.exists():
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "railyard-vm", "-f", str(key)]
            subprocess.run(command, check=True)
        target = CACHE / digest()
        if not target.exists():
            _build(target, key)
    return Image(
        disk=target / "disk.raw",
        kernel=target / "vmlinuz",
        initrd=target / "initrd.img",
        host_key=(target / "host_key.pub").read_text().strip(),
        key=key,
    )


def _build(target: Path, key: Path) -> None:
    if os.geteuid():
        raise Unavailable("building the machines' disk needs root (mmdebstrap and mke2fs keep owners and devices)")
    print(f"vm: building {target}", flush=True)
    command = [str(SOURCE / "build.sh"), SUITE, str(target), f"{key}.pub"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    for old in CACHE.iterdir():
        # Images of earlier sources; runs keep their overlays elsewhere.
        if (old / "disk.raw").exists() and old != target:
            shutil.rmtree(old)
