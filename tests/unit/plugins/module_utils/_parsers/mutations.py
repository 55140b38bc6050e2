# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to recorded text in the field, applied to any parser.

``check_all(parse, raw)`` cuts the bytes at every seventh offset, converts line ends, puts a login banner in front and
spoils single bytes.  After each mutation the parser must return JSON-able values of which every one also occurs, at the
same place, in the values of the whole text: fewer values are fine, other values never are.  Where a cut inside a line
takes something away that the line had to say, there must be a problem.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problem

BANNER = (
    b"Welcome to Ubuntu 22.04.4 LTS (GNU/Linux 5.15.0-105-generic x86_64)\n"
    b"\n"
    b" * Documentation:  https://help.example.org\n"
    b"Last login: Tue Mar  5 10:11:12 2024 from 192.0.2.7\n"
    b"############ Authorised users only ############\n"
)
# Members that describe the text and not the machine; they rightly change when the text is cut.
ABOUT_THE_TEXT = frozenset({"partial", "complete", "form", "errors", "warnings", "debug_messages", "comment"})
# `rdma -d link` writes it behind what closes the line without -d.
_DETAILS = frozenset({"netdev_index"})

Parse = Callable[[str], Parsed]


def shared_root() -> Path | None:
    """The folder of recorded outputs beside the checkout; None where there is none."""
    here = Path(__file__).resolve()
    root = next(parent for parent in here.parents if (parent / "galaxy.yml").exists())
    shared = Path(os.environ.get("RAILYARD_SHARED") or root.parent / "shared")
    return shared if (shared / "corpus" / "INDEX.tsv").is_file() else None


NO_SHARED = "no recorded outputs: ../shared/corpus is absent and RAILYARD_SHARED is not set"


def corpus_rows(*tools: str) -> list[tuple[str, str]]:
    """(path, facts) of the index rows whose folder is one of the tools; [] without the recorded outputs."""
    shared = shared_root()
    if shared is None:
        return []
    rows = []
    for line in (shared / "corpus" / "INDEX.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        cells = line.split("\t")
        if cells and cells[0].split("/")[0] in tools:
            rows.append((cells[0], cells[-1]))
    return rows


def corpus_files(*tools: str) -> list[Path]:
    """Every recorded file of the tools, in the index or not."""
    shared = shared_root()
    if shared is None:
        return []
    return sorted(path for tool in tools for path in (shared / "corpus" / tool).glob("*") if path.is_file())


def fixture_files(tool: str) -> list[Path]:
    """The project's own recordings of a tool."""
    return sorted(path for path in (Path(__file__).parent / "fixtures" / tool).glob("*") if path.is_file())


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, (bool, int, float)) for item in value)


def differences(part: Any, whole: Any, at: str = "value") -> Iterator[str]:
    """Where ``part`` says something that ``whole`` does not say.

    A mapping may lack keys, a list may lack elements (the others keep their order).  A list of numbers is a vector
    whose positions mean something (one element per priority): it is equal or it is wrong.
    """
    if isinstance(part, dict) and isinstance(whole, dict):
        for key, value in part.items():
            if key in ABOUT_THE_TEXT:
                continue
            if key not in whole:
                yield f"{at}.{key}: {value!r} is not in the whole text"
            else:
                yield from differences(value, whole[key], f"{at}.{key}")
    elif isinstance(part, list) and isinstance(whole, list):
        if _is_vector(part) or _is_vector(whole):
            if part != whole and part:
                yield f"{at}: {part!r} instead of {whole!r}"
            return
        position = 0
        for index, item in enumerate(part):
            found = next((n for n in range(position, len(whole)) if not any(differences(item, whole[n]))), None)
            if found is None:
                yield f"{at}[{index}]: {item!r} matches no element of the whole text"
                return
            position = found + 1
    elif part is not None and (type(part) is not type(whole) or part != whole):
        yield f"{at}: {part!r} instead of {whole!r}"


def check_shape(result: Any) -> None:
    """A parser's answer: ``Parsed``, JSON-able, every problem a sentence about a line."""
    assert isinstance(result, Parsed)
    json.dumps(result.value, allow_nan=False)
    for problem in result.problems:
        assert isinstance(problem, Problem)
        assert problem.line >= 0
        assert len(problem.text) <= 200
        assert problem.reason


def check_part(parse: Parse, text: str, whole: Any, what: str) -> Parsed:
    result = parse(text)
    check_shape(result)
    wrong = list(differences(result.value, whole))
    assert not wrong, f"{what}: {wrong[0]} (problems: {list(result.problems)[:3]})"
    return result


def _told(value: Any) -> Any:
    """The values of which a cut has to say that they are missing: all but those that only more details have."""
    if isinstance(value, dict):
        return {key: _told(item) for key, item in value.items() if key not in _DETAILS}
    return [_told(item) for item in value] if isinstance(value, list) else value


def check_cuts(parse: Parse, raw: bytes, step: int = 7) -> None:
    whole = parse(decode(raw)).value
    line_end, to_line_end = -1, whole
    for offset in range(0, len(raw), step):
        what = f"cut after byte {offset}: …{raw[max(0, offset - 40) : offset]!r}"
        result = check_part(parse, decode(raw[:offset]), whole, what)
        if offset > line_end:
            line_end = raw.find(b"\n", offset)
            to_line_end = parse(decode(raw[: line_end + 1])).value if line_end >= 0 else whole
        inside = raw[:offset].rpartition(b"\n")[2].strip(b"> \t\xc2\xa0")  # quoted or copied, a line begins with these
        missing = inside and not result.problems and list(differences(_told(to_line_end), result.value))
        assert not missing, f"{what}: no problem says that something is missing: {missing[0]}"


def check_line_ends(parse: Parse, raw: bytes) -> None:
    plain = parse(decode(raw))
    dos = parse(decode(raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")))
    check_shape(dos)
    assert dos.value == plain.value, "CRLF line ends change the values"


def check_banner(parse: Parse, raw: bytes) -> None:
    plain = parse(decode(raw)).value
    result = parse(decode(BANNER + raw))
    check_shape(result)
    missing = list(differences(plain, result.value)) + list(differences(result.value, plain))
    assert not missing, f"a banner in front changes the values: {missing[0]}"


def check_spoiled(parse: Parse, raw: bytes, step: int = 7) -> None:
    """One byte replaced by, and one pair of bytes inserted as, something that is not UTF-8."""
    whole = parse(decode(raw)).value
    for offset in range(0, len(raw), step):
        near = f"byte {offset}: …{raw[max(0, offset - 20) : offset + 20]!r}…"
        if raw[offset : offset + 1] != b"\n":
            check_part(parse, decode(raw[:offset] + b"\xff" + raw[offset + 1 :]), whole, f"0xff instead of {near}")
        check_part(parse, decode(raw[:offset] + b"\xc3" + raw[offset:]), whole, f"0xc3 before {near}")


def check_all(parse: Parse, raw: bytes, step: int = 7, banner: bool = True) -> None:
    """Every mutation.  ``banner=False`` for formats of which only the whole is a document (XML, JSON)."""
    check_shape(parse(decode(raw)))
    # Long recordings repeat themselves: some 1500 cuts of each keep the suite quick, at offsets of every kind.
    # RAILYARD_EVERY_CUT=1 makes all of them.
    while len(raw) // step > 1500 and not os.environ.get("RAILYARD_EVERY_CUT"):
        step += 6
    check_cuts(parse, raw, step)
    check_line_ends(parse, raw)
    if banner:
        check_banner(parse, raw)
    check_spoiled(parse, raw, step if len(raw) < 4000 else step * 5)
