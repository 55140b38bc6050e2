# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The roles' own variables (``rdma_*``, ``nccl_*``, ...) against the roles' argument specifications. Pure.

Ansible checks a role's variables when the run comes to that role, after others have changed hosts. The plan checks
those of all roles at once, from the same specifications. What a specification has no key for, it says in its
description: ``Allowed is a number from 30 to 3600.``, which is what the README shows and what is checked here.
"""

from __future__ import annotations

import difflib
import re
import typing as t

from ansible.module_utils.common import validation

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Problem

Option = t.Mapping[str, t.Any]


class Role(t.NamedTuple):
    """One role: its variables as argument_specs has them, and the names that its tasks set themselves."""

    name: str
    options: t.Mapping[str, Option]
    own: frozenset[str] = frozenset()


class Verdict(t.NamedTuple):
    problems: list[Problem]
    #: Names that begin as a role's variables do and are near none of them: other people's, or of no effect.
    strangers: list[str]


_RULE = re.compile(r"Allowed is ([^.]+(?:\.\d[^.]*)*)\.")
_RANGE = re.compile(r"^a number from (-?\d+) to (\d+)")
_NEAR = 0.8
#: What a text may be limited to; another sentence after "Allowed is" is a mistake of the specification.
_FORMS: dict[str, t.Callable[[str], bool]] = {
    "an absolute path": lambda text: re.fullmatch(r"/[^\s]*[^\s/]", text) is not None,
    'an absolute path or ""': lambda text: not text or re.fullmatch(r"/[^\s]*[^\s/]", text) is not None,
    "a size such as 512M or 8G": lambda text: re.fullmatch(r"[1-9]\d*[KMG]?", text, re.IGNORECASE) is not None,
}
_TYPES: dict[str, t.Callable[[t.Any], t.Any]] = {
    "bool": validation.check_type_bool,
    "int": validation.check_type_int,
    "float": validation.check_type_float,
    "str": lambda value: validation.check_type_str(value, allow_conversion=False),
    "list": validation.check_type_list,
    "dict": validation.check_type_dict,
}
_KINDS = {"bool": "true or false", "int": "a number", "float": "a number", "str": "a text", "dict": "a mapping"}


def rule(option: Option) -> str:
    """The sentence of the description that limits the value, without its beginning; "" where there is none."""
    said = option.get("description") or ""
    found = _RULE.search(" ".join(said) if isinstance(said, list) else said)
    return " ".join(found[1].split()) if found else ""


def allowed(option: Option) -> str:
    """What a person is told that the variable takes."""
    if option.get("choices"):
        one = "one of " + ", ".join(str(choice) for choice in option["choices"])
        return f"a list, each item {one}" if option["type"] == "list" else one
    if rule(option):
        return rule(option)
    if option["type"] == "list":
        return f"a list, each item {_KINDS.get(option.get('elements', 'str'), 'a text')}"
    return _KINDS.get(option["type"], "a value")


def refusal(option: Option, value: t.Any) -> str:
    """Why a value is not allowed; "" where it is."""
    shown = f"{value!r} is not allowed"
    fitted = _fitted(option["type"], value)
    if fitted is None:
        return shown
    if option["type"] == "list":
        items = [_fitted(option.get("elements", "str"), item) for item in fitted]
        choices = option.get("choices") or items
        bad = [given for given, item in zip(fitted, items) if item is None or item not in choices]
        return f"item {bad[0]!r} is not allowed" if bad else ""
    if option.get("choices"):
        return "" if fitted in option["choices"] else shown
    limit = rule(option)
    if match := _RANGE.match(limit):
        return "" if int(match[1]) <= fitted <= int(match[2]) else shown
    if limit:
        return "" if _FORMS[limit](str(fitted)) else shown
    return ""


def _fitted(kind: str, value: t.Any) -> t.Any:
    try:
        return _TYPES[kind](value)
    except (TypeError, ValueError):
        return None


def unread_limits(option: Option) -> bool:
    """Whether a specification limits a value in words that nothing here checks."""
    limit = rule(option)
    return bool(limit) and limit not in _FORMS and not _RANGE.match(limit)


def judge(roles: t.Iterable[Role], variables: t.Mapping[str, t.Any], intent: str) -> Verdict:
    """Everything that is wrong with one host's variables; those that begin with *intent* are checked elsewhere."""
    roles = sorted(roles, key=lambda role: -len(role.name))
    problems, strangers = [], []
    for name in sorted(name for name in variables if isinstance(name, str) and not name.startswith(intent)):
        role = next((role for role in roles if name.startswith(f"{role.name}_")), None)
        if role is None or name in role.own:
            continue
        known = [option for option in role.options if not option.startswith(intent)]
        if name in known:
            reason = refusal(role.options[name], variables[name])
            if reason:
                problems.append(Problem(name, reason, allowed(role.options[name])))
        elif near := difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
            what = f"the variables that roles/{role.name}/README.md lists"
            problems.append(Problem(name, f"no such variable; the nearest is {near[0]}", what))
        else:
            strangers.append(name)
    return Verdict(problems, strangers)


__all__ = ("Role", "Verdict", "allowed", "judge", "refusal", "rule", "unread_limits")
