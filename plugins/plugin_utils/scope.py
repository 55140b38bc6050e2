# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts and layers a run means: names of groups and tags that are nearly right are taken for mistakes."""

from __future__ import annotations

import difflib
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import Problem

#: The tags of playbooks/site.yml, in the order of its plays.
TAGS = ("preflight", "ofed", "nvidia", "cuda", "nccl", "rdma", "security", "prove", "benchmark", "report")
_ANSIBLE = ("all", "always", "never", "tagged", "untagged")


def misspelt_tags(tags: t.Iterable[str], option: str) -> list[Problem]:
    """Tags that are nearly one of ours: nothing would be applied, or what was to be left out would be.

    Other unknown ones may be of a playbook that imports this collection's.
    """
    found = []
    for tag in tags:
        near = difflib.get_close_matches(tag.lower(), TAGS, n=1, cutoff=0.75)
        if tag not in (*TAGS, *_ANSIBLE) and near:
            found.append(
                Problem(option, f"{tag!r} is the tag of no layer", f"{near[0]}, or another tag of {list(TAGS)}")
            )
    return found


def names_no_layer(tags: t.Collection[str]) -> bool:
    """Whether a run was told tags of which none makes this collection do anything but look."""
    return bool(tags) and not set(tags) & {*TAGS, *_ANSIBLE}


def misspelt_group(group: str, groups: t.Mapping[str, t.Sequence[str]]) -> list[Problem]:
    """Without the group every host is the rack's, which nobody means who has a group of nearly that name.

    That is refused and not warned of: hosts beside the rack would get drivers and a firewall. Where such groups hold
    every host, nothing depends on the name.
    """
    if group in groups:
        return []
    plain = _bare(group)
    bare = {name: _bare(name) for name in groups if name not in ("all", "ungrouped") and groups[name]}
    like = difflib.get_close_matches(plain, bare.values(), n=5, cutoff=0.8)
    # Parts of a rack, as gpu_nodes_a and gpu_nodes_b, are no names of the whole either.
    near = [name for name, text in bare.items() if text in like or text.startswith(plain)]
    others = [host for host in groups.get("all", ()) if not any(host in groups[name] for name in near)]
    if not near or not others:
        return []
    shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
    message = (
        f"there is no group {group}, so every host would be of the rack, also {shown}, which "
        f"{'is' if len(others) == 1 else 'are'} not in {' or '.join(near)}"
    )
    allowed = f"a group {group}, in place of {near[0]} or with it among its children"
    return [Problem("inventory", message, allowed)]


def _bare(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def no_group(group: str) -> Problem:
    return Problem("inventory", "the host is in no group", f"hosts of the group {group}, or of another group")
