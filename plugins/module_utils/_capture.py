# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What the info modules share: from a recorded file, a bundle or the host itself to a parser's values."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._bundle import bundle_name
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problem
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import (
    READ_LIMIT,
    BundleSource,
    LiveSource,
    Source,
)

ARGUMENTS: dict[str, t.Any] = {"capture": {"type": "path"}, "host": {"type": "str"}}
_MAX_WARNINGS = 10
Command = tuple[str, ...]


class Tool(t.NamedTuple):
    """A tool that an info module reads."""

    # Commands in the order of preference; the first that answers is read.
    commands: tuple[Command, ...]
    parse: t.Callable[[str], Parsed]
    # Member of the value that holds what was asked for.
    subject: str
    # The same answer without the tool; None where only the tool knows it.
    from_sysfs: t.Callable[[Source], list[t.Any]] | None


def open_bundle(capture: str, host: str | None, commands: t.Sequence[Command]) -> Source:
    """The recorded host in a folder: the folder itself, or one below it."""
    if host is not None and (os.sep in host or host in ("", ".", "..")):
        raise Failure(f"host is {host!r}, wanted the name of one folder in {capture}.")
    if host is not None:
        directory = os.path.join(capture, host)
        if os.path.isdir(directory):
            return BundleSource(directory)
        if os.path.basename(os.path.abspath(capture)) == host:
            return BundleSource(capture)
        raise Failure(f"{capture} holds nothing of host {host!r}; its hosts are: {_names(_hosts(capture))}.")
    wanted = {name for command in commands for name in bundle_name(command)}
    if os.path.isdir(os.path.join(capture, "root")) or wanted.intersection(os.listdir(capture)):
        return BundleSource(capture)
    hosts = _hosts(capture)
    if len(hosts) > 1:
        raise Failure(f"{capture} holds several hosts, set the option host to one of: {_names(hosts)}.")
    return BundleSource(os.path.join(capture, hosts[0]) if hosts else capture)


def _hosts(capture: str) -> list[str]:
    # `before` holds what was recorded earlier, not a host.
    return [
        name for name in sorted(os.listdir(capture)) if name != "before" and os.path.isdir(os.path.join(capture, name))
    ]


def _names(names: list[str]) -> str:
    return ", ".join(names) if names else "none"


def read_file(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read(READ_LIMIT).decode("utf-8", "replace")
    except OSError as exc:
        raise Failure(f"Cannot read capture {path}: {exc.strerror}.") from exc


def _ask(source: Source, tool: Tool) -> tuple[str, Parsed, int | None]:
    """(command, values, exit status) of the first command that tells something; the first answer where none does."""
    first: tuple[str, Parsed, int | None] | None = None
    for command in tool.commands:
        output = source.run(command)
        if output is None:
            continue
        answer = (" ".join(command), tool.parse(output.text), None if output.recorded else output.rc)
        if answer[1].value[tool.subject]:
            return answer
        first = first or answer
    return first or ("", tool.parse(""), None)


def gather(tool: Tool, capture: str | None, host: str | None) -> dict[str, t.Any]:
    """The result of an info module: the parser's members, `origin`, `command`, `rc` and `problems`."""
    if capture is not None and not os.path.isdir(capture):
        if host is not None:
            raise Failure(f"host is {host!r}, but capture {capture} is one recorded output and no bundle.")
        return _result("recorded", "", tool.parse(read_file(capture)), None)
    if capture is None and host is not None:
        raise Failure(f"host is {host!r}, but without capture there is no bundle to look for it in.")
    source = LiveSource() if capture is None else open_bundle(capture, host, tool.commands)
    command, parsed, rc = _ask(source, tool)
    origin = "none" if not command else "tool" if source.live else "recorded"
    if not parsed.value[tool.subject] and tool.from_sysfs is not None:
        found = tool.from_sysfs(source)
        if found:
            form = {"form": "sysfs"} if "form" in parsed.value else {}
            parsed = Parsed({**parsed.value, **form, tool.subject: found}, parsed.problems)
            origin = "sysfs"
    problems = list(parsed.problems)
    if origin == "none":
        name = tool.commands[-1][0]
        if tool.from_sysfs is None:
            lacking = f"{name} {'is not on this host or does not answer' if source.live else 'was not recorded'}."
        else:
            does = "answers on this host" if source.live else "was recorded"
            lacking = f"Neither {name} nor /sys/class/infiniband {does}."
        problems.append(Problem(0, "", lacking))
    problems.extend(Problem(0, note["source"], note["reason"]) for note in source.unread)
    return _result(origin, command, Parsed(parsed.value, tuple(problems)), rc)


def _result(origin: str, command: str, parsed: Parsed, rc: int | None) -> dict[str, t.Any]:
    result = {**parsed.value, "origin": origin, "problems": [problem._asdict() for problem in parsed.problems]}
    if command:
        result["command"] = command
    if rc is not None:
        result["rc"] = rc
    return result


def warn(module: AnsibleModule, problems: list[dict[str, t.Any]]) -> None:
    """Each problem as a warning; of many, the first ones and how many more there are."""
    for problem in problems[:_MAX_WARNINGS]:
        where = f"line {problem['line']}: " if problem["line"] else ""
        what = f" [{problem['text']}]" if problem["text"] else ""
        module.warn(f"{where}{problem['reason']}{what}")
    if len(problems) > _MAX_WARNINGS:
        module.warn(f"{len(problems) - _MAX_WARNINGS} more problems are in the result's member problems.")


def run_module(tool: Tool) -> t.NoReturn:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = gather(tool, module.params["capture"], module.params["host"])
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    warn(module, result["problems"])
    module.exit_json(changed=False, **result)
