# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A role's interface is said in its specification, its defaults and its README: all three agree."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import role_variables

ROOT = pathlib.Path(__file__).parents[3]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir())


def load(path: pathlib.Path) -> t.Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def options(role: pathlib.Path) -> dict[str, dict[str, t.Any]]:
    return load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request: pytest.FixtureRequest) -> pathlib.Path:
    return request.param


def test_defaults_are_those_of_the_specification(role: pathlib.Path) -> None:
    with_default = {name: spec["default"] for name, spec in options(role).items() if "default" in spec}
    assert with_default == (load(role / "defaults/main.yml") or {})


def test_every_option_has_type_and_meaning(role: pathlib.Path) -> None:
    lacking = [name for name, spec in options(role).items() if not spec.get("type") or not spec.get("description")]
    assert lacking == []
    no_elements = [name for name, spec in options(role).items() if spec["type"] == "list" and "elements" not in spec]
    assert no_elements == []


def test_names_say_whose_they_are(role: pathlib.Path) -> None:
    strangers = [name for name in options(role) if not name.startswith((f"{role.name}_", "gpu_fabric_"))]
    assert strangers == []


def test_readme_names_every_variable(role: pathlib.Path) -> None:
    readme = (role / "README.md").read_text(encoding="utf-8")
    assert [name for name in options(role) if f"`{name}`" not in readme] == []


def test_what_is_shown_twice_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/role_docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run tools/role_docs.py: {done.stdout}{done.stderr}"


def test_numbers_and_paths_have_limits_that_the_plan_checks(role: pathlib.Path) -> None:
    own = {name: spec for name, spec in options(role).items() if not name.startswith("gpu_fabric_")}
    assert [name for name, spec in own.items() if spec["type"] in ("int", "float") and "choices" not in spec
            and not role_variables.rule(spec).startswith("a number from")] == []  # fmt: skip
    assert [name for name, spec in own.items() if role_variables.unread_limits(spec)] == []


def test_defaults_are_allowed(role: pathlib.Path) -> None:
    own = {name: spec for name, spec in options(role).items() if not name.startswith("gpu_fabric_")}
    given = {
        name: spec["default"] for name, spec in own.items() if "default" in spec and "{{" not in str(spec["default"])
    }
    assert role_variables.judge([role_variables.Role(role.name, own)], given, "gpu_fabric_") == ([], [])


def test_truths_given_on_the_command_line_are_truths(role: pathlib.Path) -> None:
    """-e name=false is the text 'false', which is true to a condition and to a template."""
    truths = [name for name, spec in options(role).items() if spec["type"] == "bool" and name.startswith(role.name)]
    for path in [*role.glob("tasks/*.yml"), *role.glob("templates/*")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            bare = (
                re.search(rf"(?:when: |- |% if )(?:not )?({'|'.join(truths)})\b(?! \| bool)", line) if truths else None
            )
            assert bare is None, f"{path}: {line}"
