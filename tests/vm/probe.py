"""What a machine is set to, as JSON. Runs on the machine, by `python3 -`, past the code under test.

Arguments: names of kernel parameters to read.
"""

import hashlib
import json
import os
import resource
import subprocess
import sys


def answer(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, check=False, text=True).stdout


def ip(*argv):
    return [entry for entry in json.loads(answer("ip", "-json", *argv) or "[]") if entry]


def links():
    found = {}
    for entry in ip("address", "show"):
        found[entry["ifname"]] = {
            "mtu": entry["mtu"],
            "up": "UP" in entry["flags"],
            "master": entry.get("master"),
            "addresses": sorted(
                f"{item['local']}/{item['prefixlen']}" for item in entry["addr_info"] if item["scope"] != "link"
            ),
        }
    return found


def routes(family):
    return sorted(
        (
            str(entry.get("table", "main")),
            entry["dst"],
            entry.get("gateway", ""),
            entry["dev"],
            entry.get("prefsrc", ""),
        )
        for entry in ip(family, "route", "show", "table", "all")
        if entry.get("type", "unicast") == "unicast"
        and entry.get("table") != "local"
        and "dev" in entry
        and not entry["dst"].startswith(("fe80:", "ff00:"))
    )


def rules():
    return sorted(
        (entry["priority"], entry["src"], str(entry["table"])) for entry in ip("-4", "rule", "show") if "table" in entry
    )


def parameter(key):
    # An interface's name may hold a dot; sysctl then swaps it with the slash.
    path = "/proc/sys/" + key.translate(str.maketrans("./", "/."))
    try:
        with open(path, encoding="ascii") as stream:
            return " ".join(stream.read().split())
    except FileNotFoundError:
        return None


def files(*roots):
    found = {}
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    found[path] = "-> " + os.readlink(path)
                elif os.path.isfile(path):
                    with open(path, "rb") as stream:
                        found[path] = hashlib.sha256(stream.read()).hexdigest()
    return found


def limits(pid):
    with open(f"/proc/{pid}/limits", encoding="ascii") as stream:
        lines = stream.read().splitlines()
    labels = {"memlock": "Max locked memory", "nofile": "Max open files"}
    return {
        name: line[len(label) :].split()[:2]
        for name, label in labels.items()
        for line in lines
        if line.startswith(label)
    }


def modules():
    """Loaded modules but for those of algorithms (crc32_generic), which one boot needs and the next one may not."""
    with open(f"/lib/modules/{os.uname().release}/modules.dep", encoding="ascii") as stream:
        paths = [line.partition(":")[0] for line in stream]
    algorithms = {
        os.path.basename(path).partition(".")[0].replace("-", "_") for path in paths if "crypto" in path.split("/")
    }
    with open("/proc/modules", encoding="ascii") as stream:
        return sorted({line.split()[0] for line in stream} - algorithms)


def main(keys):
    sshd = answer("systemctl", "show", "--property=MainPID", "--value", "ssh.service").strip()
    login = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    print(
        json.dumps(
            {
                "links": links(),
                "routes": routes("-4") + routes("-6"),
                "rules": rules(),
                "sysctl": {key: parameter(key) for key in keys},
                "files": files("/etc", "/usr/local", "/var/lib/gpu_fabric"),
                "enabled": sorted(
                    line.split()[0]
                    for line in answer(
                        "systemctl", "list-unit-files", "--state=enabled", "--no-legend", "--no-pager"
                    ).splitlines()
                ),
                "limits": {
                    "sshd": limits(sshd),
                    "login_memlock_unlimited": login == (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
                    "systemd": answer("systemctl", "show", "--property=DefaultLimitMEMLOCK", "--value").strip(),
                },
                "modules": modules(),
                "infiniband": sorted(os.listdir("/sys/class/infiniband"))
                if os.path.isdir("/sys/class/infiniband")
                else [],
            }
        )
    )


main(sys.argv[1:])
