# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a provisioning server would give a new machine: keys, address, package sources.

One directory per node, `nodes/<name>/`, which the container sees; the node's init copies its `root/` once.
Keys outlive a reset, so that the known_hosts file stays true and strict checking stays on.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from .engine import write_if_changed

DEBIAN_KEY = "etc/apt/keyrings/lab-debian.gpg"


def make_key(path: Path, comment: str) -> bool:
    if path.exists() and path.with_name(path.name + ".pub").exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True, capture_output=True
    )
    return True


def network_file(rack: dict[str, Any], node: dict[str, Any]) -> str:
    return (
        f"[Match]\nName=eth0\n\n[Network]\nAddress={node['address']}/{rack['prefix_length']}\n"
        f"Gateway={rack['gateway']}\nLinkLocalAddressing=ipv6\nIPv6AcceptRA=no\n"
    )


def hosts_file(rack: dict[str, Any]) -> str:
    lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    return "\n".join([*lines, *(f"{node['address']}\t{node['name']}" for node in rack["nodes"]), ""])


def debian_sources(rack: dict[str, Any]) -> str:
    return (
        "# The Debian packages that the rack's nodes may need, served by the lab.\n"
        f"Types: deb\nURIs: {rack['repository_url']}/debian\nSuites: ./\n"
        f"Signed-By: /{DEBIAN_KEY}\n"
    )


def write(rack: dict[str, Any], directory: Path, repository: Path | None) -> bool:
    """Bring the seed of every node, the controller's key and known_hosts up to date; True: something was written."""
    ssh = directory / "ssh"
    changed = make_key(ssh / "id_ed25519", f"{rack['name']} lab")
    public = (ssh / "id_ed25519.pub").read_text()
    known = []
    for node in rack["nodes"]:
        seed = directory / "nodes" / node["name"]
        root = seed / "root"
        host_key = root / "etc/ssh/ssh_host_ed25519_key"
        changed |= make_key(host_key, node["name"])
        known.append(
            f"{node['address']} {' '.join(host_key.with_name(host_key.name + '.pub').read_text().split()[:2])}\n"
        )
        changed |= write_if_changed(root / "root/.ssh/authorized_keys", public, 0o600)
        (root / "root").chmod(0o700)
        (root / "root/.ssh").chmod(0o700)
        changed |= write_if_changed(root / "etc/systemd/network/10-eth0.network", network_file(rack, node))
        changed |= write_if_changed(root / "etc/hosts", hosts_file(rack))
        if repository:
            key = root / DEBIAN_KEY
            key.parent.mkdir(parents=True, exist_ok=True)
            key.write_bytes((repository / "www/debian/lab-debian.gpg").read_bytes())
            changed |= write_if_changed(root / "etc/apt/sources.list.d/debian.sources", debian_sources(rack))
        changed |= write_if_changed(seed / "node.json", json.dumps({"rack": rack["name"], **node}, indent=2) + "\n")
        changed |= write_if_changed(seed / "node.env", f"LAB_PROFILE={node['profile']}\nLAB_HOST={node['name']}\n")
    changed |= write_if_changed(ssh / "known_hosts", "".join(known))
    return changed
