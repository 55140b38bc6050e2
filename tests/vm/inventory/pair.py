#!/usr/bin/env python3
"""Dynamic inventory of the machines that the tests have running (tests/vm/machines.py writes where they are)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

RECORD = Path(__file__).resolve().parents[3] / ".cache/vm/run/pair.json"


def main() -> None:
    if not RECORD.exists():
        sys.exit(f"{RECORD} is missing: no machines are running; `make test-vm` starts them")
    hosts = json.loads(RECORD.read_text())
    print(json.dumps({"gpu_nodes": {"hosts": sorted(hosts)}, "_meta": {"hostvars": hosts}}, indent=2))


if __name__ == "__main__":
    main()
