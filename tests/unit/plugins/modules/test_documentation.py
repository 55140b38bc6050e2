# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `ansible-doc` reads of a module is whole, and its examples use options that it has."""

from __future__ import annotations

import importlib
import pathlib
import typing as t

import pytest
import yaml

MODULES = pathlib.Path(__file__).parents[4] / "plugins/modules"
NAMES = sorted(path.stem for path in MODULES.glob("[a-z]*.py"))


def documented(name: str) -> tuple[dict[str, t.Any], t.Any, t.Any]:
    module = importlib.import_module(f"ansible_collections.railyard.gpu_fabric.plugins.modules.{name}")
    texts = (getattr(module, part) for part in ("DOCUMENTATION", "EXAMPLES", "RETURN"))
    return t.cast(t.Any, tuple(yaml.safe_load(text) for text in texts))


@pytest.mark.parametrize("name", NAMES)
def test_documentation_is_whole(name: str) -> None:
    documentation, examples, returned = documented(name)
    assert documentation["module"] == name and documentation["short_description"]
    assert isinstance(examples, list) and (returned is None or isinstance(returned, dict))
    own = documentation.get("options") or {}
    fragments = documentation.get("extends_documentation_fragment") or []
    for task in examples:
        used = set(task.get(f"railyard.gpu_fabric.{name}") or {})
        if all(fragment.endswith(("_writes", "_attributes", ".facts")) for fragment in fragments):
            assert used <= set(own), f"an example of {name} uses {used - set(own)}"


@pytest.mark.parametrize("name", NAMES)
def test_every_option_and_every_result_is_described(name: str) -> None:
    documentation, _examples, returned = documented(name)
    for part in (documentation.get("options") or {}, returned or {}):
        assert [key for key, value in part.items() if not value.get("description") or not value.get("type")] == []
