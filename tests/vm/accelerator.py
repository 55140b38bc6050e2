"""Whether a guest really boots under KVM here: that /dev/kvm exists says little on a machine that is a guest itself."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from image_cache import CACHE, Image

KVM = ["-accel", "kvm", "-cpu", "host"]
# Every feature that the emulator has: some programs of a distribution want more than the oldest 64-bit processor.
EMULATION = ["-accel", "tcg,thread=multi", "-cpu", "max"]
PROBE_S = 15.0
# The kernel says this when it has come up and is about to start its first program.
SIGN = "Run /init as init process"


def choose(image: Image) -> list[str]:
    """Return the options of qemu. The answer is kept until this machine restarts."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return EMULATION
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record = CACHE / f"kvm-{boot}"
    if not record.exists():
        for old in CACHE.glob("kvm-*"):
            old.unlink()
        record.write_text("yes" if boots(image, KVM, PROBE_S) else "no")
    return KVM if record.read_text() == "yes" else EMULATION


def boots(image: Image, options: list[str], limit_s: float) -> bool:
    """Start the kernel with nothing but a console and see whether it comes up in time."""
    console = CACHE / f"probe-{os.getpid()}.log"
    console.write_text("")
    command = [
        "qemu-system-x86_64", *options, "-m", "512", "-nodefaults", "-no-user-config", "-display", "none",
        "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", "console=ttyS0 panic=-1",
        "-serial", f"file:{console}", "-no-reboot",
    ]  # fmt: skip
    machine = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + limit_s
    try:
        while time.monotonic() < end and machine.poll() is None:
            if SIGN in console.read_text(errors="replace"):
                return True
            time.sleep(0.2)
        return SIGN in console.read_text(errors="replace")
    finally:
        machine.kill()
        machine.wait()
        console.unlink()
