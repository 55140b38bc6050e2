#!/usr/bin/env python3
"""Start the two virtual machines and hold them until they are told to end (Ctrl-C), for a look by hand.

usage: hold.py [MANAGER MANAGER]     networkd, netplan, networkmanager or ifupdown, one for each machine (networkd)

Meanwhile `ansible-playbook site.yml -i tests/vm/inventory --tags rdma` works on them.
"""

from __future__ import annotations

import signal
import sys

import image_cache
from machines import Pair, Refused

MANAGERS = ("networkd", "netplan", "networkmanager", "ifupdown")


def main(arguments: list[str]) -> int:
    given = tuple(arguments) or ("networkd", "networkd")
    if len(given) != 2 or not set(given) <= set(MANAGERS):
        print(f"hold.py: {' '.join(given)!r}; give two of {', '.join(MANAGERS)}, or none", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Pair(image_cache.image(), (given[0], given[1])) as pair:
            for machine in pair.machines:
                print(f"{machine.name}: {' '.join(machine.ssh_command())}", flush=True)
            print("Ctrl-C ends them.", flush=True)
            signal.pause()
    except (image_cache.Unavailable, Refused) as reason:
        print(f"hold.py: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("The machines are gone.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
