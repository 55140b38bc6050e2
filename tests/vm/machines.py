"""Two virtual machines: management by SSH on loopback, two rails and two bond members joined by private links."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shlex
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import accelerator
from image_cache import CACHE, Image

NAMES = ("vm-01", "vm-02")
# The links between the machines, in the order of their slots: ens4 and ens5 are rails, ens6 and ens7 a bond's members.
LINKS = ("rail0", "rail1", "bond0", "bond1")
CAPTURED = ("rail0", "rail1")
MEMORY_MIB = 1024
BOOT_S = 600.0
REACH_S = 120
DOWN_S = 300.0


class Refused(Exception):
    """A command on a machine that did not succeed."""


class Stalled(Refused):
    """An emulated machine whose clock stood still while it booted, as on a host that is busy with other things."""


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for item in held:
        item.bind(("127.0.0.1", 0))
    ports = [item.getsockname()[1] for item in held]
    for item in held:
        item.close()
    return ports


@dataclass
class Machine:
    """One machine: a disk, and the emulator that runs it while it is on."""

    name: str
    number: int
    directory: Path
    image: Image
    ssh_port: int
    links: dict[str, int]  # ports on loopback where the links' ends meet
    manager: str
    options: list[str]  # of the emulator: how it runs the machine's code
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"192.168.76.{10 + self.number}"

    @property
    def console(self) -> Path:
        return self.directory / f"{self.name}.console"

    def capture(self, link: str) -> Path:
        return self.directory / f"{self.name}-{link}.pcap"

    @property
    def disk(self) -> Path:
        return self.directory / f"{self.name}.qcow2"

    def make_disk(self) -> None:
        create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(self.image.disk), str(self.disk)]
        subprocess.run(create, check=True)

    def power_on(self) -> None:
        append = (
            "root=/dev/vda rw console=ttyS0 quiet init=/usr/lib/railyard-vm/init mitigations=off "
            f"railyard.name={self.name} railyard.address={self.address}/24 railyard.manager={self.manager}"
        )
        command = [
            "nice", "qemu-system-x86_64", "-name", self.name, "-machine", "pc", *self.options,
            "-m", str(MEMORY_MIB), "-smp", "2", "-nodefaults", "-no-user-config", "-display", "none",
            "-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd), "-append", append,
            "-drive", f"file={self.disk},if=virtio,format=qcow2,cache=unsafe",
            "-device", "virtio-rng-pci", "-serial", f"file:{self.console}",
            # A machine that reboots is powered on anew: emulators have been seen to end in the reset of a busy machine.
            "-no-reboot",
            "-qmp", f"unix:{self.directory}/{self.name}.qmp,server=on,wait=off",
            # Nothing but the forwarded port leads in, and nothing leads out.
            "-netdev", f"user,id=management,net=192.168.76.0/24,host=192.168.76.2,ipv6=off,restrict=on,"
                       f"hostfwd=tcp:127.0.0.1:{self.ssh_port}-{self.address}:22",
            "-device", self._nic("management", 3),
        ]  # fmt: skip
        for slot, link in enumerate(LINKS, 4):
            end = f"{'listen' if self.number == 1 else 'connect'}=127.0.0.1:{self.links[link]}"
            command += ["-netdev", f"socket,id={link},{end}", "-device", self._nic(link, slot)]
            if link in CAPTURED:
                command += ["-object", f"filter-dump,id=dump-{link},netdev={link},file={self.capture(link)},maxlen=128"]
        with (self.directory / f"{self.name}.qemu").open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        # The other machine connects to this one's ends.
        self._wait_for_qmp()

    def _nic(self, link: str, slot: int) -> str:
        # A speed, because members of an 802.3ad bond must know theirs.
        speed = "speed=10000,duplex=full"
        return (
            f"virtio-net-pci,netdev={link},id=nic-{link},addr={slot:#x},mac=52:54:00:76:0{self.number}:0{slot},{speed}"
        )

    def _wait_for_qmp(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process is not None and self.process.poll() is not None:
                raise Refused(f"{self.name}: {self._end()}")
            try:
                self.qmp("query-status")
                return
            except OSError:
                time.sleep(0.2)
        raise Refused(f"{self.name}: qemu does not answer")

    def qmp(self, command: str, **arguments: Any) -> Any:
        """One command to the machine's hardware."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self.directory / f"{self.name}.qmp"))
            stream = connection.makefile("rw", encoding="utf-8")
            stream.readline()
            for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                while True:
                    answer = json.loads(stream.readline())
                    if "error" in answer:
                        raise Refused(f"{self.name}: {command}: {answer['error']['desc']}")
                    if "return" in answer:
                        break
        return answer["return"]

    def plug(self, link: str, connected: bool) -> None:
        """Pull a cable, or put it back."""
        self.qmp("set_link", name=f"nic-{link}", up=connected)

    def ssh_options(self) -> list[str]:
        return [
            "-i", str(self.image.key), "-o", f"UserKnownHostsFile={self.directory}/known_hosts",
            "-o", "HostKeyAlias=railyard-vm", "-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=/dev/null",
            "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=20",
        ]  # fmt: skip

    def run(
        self, command: str | list[str], check: bool = True, timeout_s: float = 300, stdin: str | None = None
    ) -> str:
        """The standard output of a command on the machine."""
        text = command if isinstance(command, str) else shlex.join(command)
        done = subprocess.run(
            self._ssh(text), input=stdin or "", capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode:
            raise Refused(f"{self.name}: {text} exited with {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[str]:
        """A command that goes on while the test does other things; its standard output is piped."""
        return subprocess.Popen(self._ssh(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def ssh_command(self, *options: str) -> list[str]:
        return ["ssh", *self.ssh_options(), *options, "-p", str(self.ssh_port), "root@127.0.0.1"]

    def _ssh(self, command: str) -> list[str]:
        return [*self.ssh_command("-o", "BatchMode=yes"), command]

    def boot_id(self) -> str:
        return self.run("cat /proc/sys/kernel/random/boot_id").strip()

    def go_down(self) -> None:
        """Tell the machine to reboot, and wait until it comes to its reset."""
        assert self.process is not None
        end = time.monotonic() + DOWN_S
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise Refused(f"{self.name} was told to reboot and goes on running; {self._last_words()}")
            # The connection may break before the command's status is known; it may also not come about.
            self.run("systemctl reboot", check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=10)
        if self.process.returncode:
            raise Refused(f"{self.name}: {self._end()}")
        self.process = None

    def _end(self) -> str:
        assert self.process is not None
        said = (self.directory / f"{self.name}.qemu").read_text()
        return f"qemu ended with status {self.process.returncode}: {said}"

    def _last_words(self) -> str:
        tail = self.console.read_text(errors="replace")[-2000:] if self.console.exists() else ""
        return f"its console ends with:\n{tail}"

    def wait(self) -> None:
        """Wait until the machine has booted."""
        end = time.monotonic() + BOOT_S
        said = ""
        while time.monotonic() < end:
            if self.process is not None and self.process.poll() is not None:
                raise Refused(f"{self.name}: {self._end()}")
            try:
                state = self.run("systemctl is-system-running --wait", check=False, timeout_s=BOOT_S).strip()
                if state in ("running", "degraded"):
                    return
                said = f"systemd is {state}"
            except subprocess.TimeoutExpired as exc:
                said = str(exc)
            time.sleep(2)
        refusal = Stalled if "rcu_preempt detected stalls" in self._last_words() else Refused
        raise refusal(f"{self.name} did not boot within {BOOT_S:g} s ({said}); {self._last_words()}")

    def reach(self, address: str) -> None:
        """Wait until an address answers: after a boot, the links of both machines come up in their own time."""
        self.run(f"timeout {REACH_S} sh -c 'until ping -c 1 -W 2 {address}; do sleep 1; done'")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class Pair:
    """Both machines of one run, and the inventory by which Ansible finds them."""

    image: Image
    # Which network manager each of the two has.
    managers: tuple[str, str] = ("networkd", "networkd")
    machines: list[Machine] = field(default_factory=list)
    directory: Path = CACHE / "run"
    _lock: IO[str] | None = None

    def __enter__(self) -> Pair:
        # One pair at a time: both are heavy where they are emulated, and the inventory knows one.
        self._lock = (CACHE / "pair.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        (self.directory / "known_hosts").write_text(f"railyard-vm {self.image.host_key}\n")
        options = accelerator.choose(self.image)
        ports = free_ports(len(NAMES) + len(LINKS))
        links = dict(zip(LINKS, ports[len(NAMES) :]))
        try:
            for number, (name, manager) in enumerate(zip(NAMES, self.managers), 1):
                machine = Machine(name, number, self.directory, self.image, ports[number - 1], links, manager, options)
                self.machines.append(machine)
                machine.make_disk()
            self._write_inventory()
            self._power_on()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _write_inventory(self) -> None:
        """What tests/vm/inventory/pair.py tells Ansible."""
        hosts = {
            machine.name: {
                "ansible_host": "127.0.0.1",
                "ansible_port": machine.ssh_port,
                "ansible_user": "root",
                "ansible_python_interpreter": "/usr/bin/python3",
                "ansible_ssh_common_args": shlex.join([*machine.ssh_options(), "-o", "ControlPath=none"]),
            }
            for machine in self.machines
        }
        (self.directory / "pair.json").write_text(json.dumps(hosts, indent=2))

    def _power_on(self, again: bool = True) -> None:
        """Both boot. Emulated ones, where the clock of one stood still meanwhile, are switched on once more."""
        for machine in self.machines:
            machine.power_on()
        try:
            for machine in self.machines:
                machine.wait()
        except Stalled as exc:
            if not again:
                raise
            print(f"{exc}\nIts virtual CPUs got no time; both machines are switched off and on once more.", flush=True)
            for machine in self.machines:
                machine.stop()
            self._power_on(again=False)

    def reboot(self) -> None:
        """Both: a link would not outlive one of its ends."""
        before = [machine.boot_id() for machine in self.machines]
        for machine in self.machines:
            machine.go_down()
        self._power_on()
        for machine, boot in zip(self.machines, before):
            assert machine.boot_id() != boot, f"{machine.name} is still in the boot that it was told to leave"

    def __exit__(self, *_: object) -> None:
        for machine in self.machines:
            machine.stop()
        if self._lock is not None:
            self._lock.close()
