# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of package_set that need no apt."""

from __future__ import annotations

import base64
import hashlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _apt, _apt_sources, _openpgp
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._packages import satisfies

BODY = b"\x04\x66\x00\x00\x00\x16" + bytes(range(40))
FINGERPRINT = hashlib.sha1(b"\x99" + len(BODY).to_bytes(2, "big") + BODY).hexdigest().upper()
OLD_FORMAT = bytes([0x80 | 6 << 2, len(BODY)]) + BODY
NEW_FORMAT = bytes([0xC0 | 6, len(BODY)]) + BODY
USER = bytes([0xC0 | 13, 4]) + b"Name"


def armour(data: bytes, headers: str = "Version: 1\nComment: x\n") -> bytes:
    text = base64.encodebytes(data).decode()
    begin, end = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
    return f"{begin}\n{headers}\n{text}=abcd\n{end}\n".encode()


@pytest.mark.parametrize(
    "data",
    [
        OLD_FORMAT + USER,
        NEW_FORMAT,
        armour(OLD_FORMAT + USER),
        armour(NEW_FORMAT, headers=""),
        armour(NEW_FORMAT).replace(b"\n", b"\r\n"),
        b"text before\n" + armour(NEW_FORMAT),
    ],
)
def test_fingerprints(data: bytes) -> None:
    assert _openpgp.fingerprints(data) == [FINGERPRINT]


def test_a_file_may_hold_several_keys() -> None:
    assert _openpgp.fingerprints(armour(OLD_FORMAT) + armour(NEW_FORMAT)) == [FINGERPRINT, FINGERPRINT]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "neither an armoured nor a binary"),
        (b"<html>404</html>", "neither an armoured nor a binary"),
        (armour(NEW_FORMAT).rpartition(b"-----END")[0], "the key is truncated"),
        (NEW_FORMAT[:-1], "the key is truncated"),
        (armour(USER), "it holds no public key"),
    ],
)
def test_what_is_no_key(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _openpgp.fingerprints(data)


@given(st.binary(max_size=80), st.integers(0, 60))
def test_any_bytes_are_a_key_or_refused(data: bytes, cut: int) -> None:
    for text in (data, armour(data), OLD_FORMAT[:cut] + data):
        try:
            assert all(len(found) in (40, 64) for found in _openpgp.fingerprints(text))
        except ValueError:
            pass


@pytest.mark.parametrize(
    ("version", "pin", "fits"),
    [
        ("580.95.05-1", "580.95.05", True),
        ("1:580.95.05-0ubuntu1", "580.95.05", True),
        ("580.95.05-1", "580.95.05-1", True),
        ("580.95.05-1", "", True),
        ("580.95.05-1", "580.*", True),
        ("580.95.051-1", "580.95.05", False),
        ("580.95.05-10", "580.95.05-1", False),
        ("2.28.3-1+cuda13.0", "2.28.3-1+cuda12.9", False),
        ("2.28.3-1+cuda13.0", "2.28.3", True),
        ("580.95.05", "580.95.05", True),
    ],
)
def test_versions(version: str, pin: str, fits: bool) -> None:
    assert satisfies(version, pin) is fits


SIMULATION = """\
NOTE: This is only a simulation!
Remv nvidia-old [570.1-1]
Inst nvidia-open [570.1-1] (580.2-1 vendor:1/test [amd64]) []
Inst libnvidia-ml1:i386 (580.2-1 vendor:1/test [i386])
Purg rdma-plain [1]
Conf nvidia-open (580.2-1 vendor:1/test [amd64])
"""


def test_simulation() -> None:
    assert [tuple(move) for move in _apt.parse_simulation(SIMULATION)] == [
        ("libnvidia-ml1", None, "580.2-1"),
        ("nvidia-old", "570.1-1", None),
        ("nvidia-open", "570.1-1", "580.2-1"),
        ("rdma-plain", "1", None),
    ]


def test_installed() -> None:
    text = (
        "a\t1\tinstalled\thold\nb\t2\tconfig-files\tdeinstall\nc\t\tnot-installed\tunknown\na\t9\tinstalled\tinstall\n"
    )
    found = _apt.parse_installed(text)
    assert found["a"] == ("1", True, False) and found["b"] == ("2", False, True) and "c" not in found


SOURCES: list[tuple[str, str, str | None]] = [
    ("x.list", "deb [signed-by=/a] https://host/repo/ /\ndeb http://other/ y main\n", "deb http://other/ y main\n"),
    ("x.list", "# gone by 2022\ndeb http://HOST/repo /\n", None),
    ("x.list", "#deb https://host/repo /\ndeb https://host/repo2 /\n", "unchanged"),
    ("x.list", "deb https://host/repo stable main\n", "unchanged"),
    ("x.sources", "Types: deb\nURIs: https://host/repo\nSuites: /\n", None),
    (
        "x.sources",
        "Types: deb\nURIs:\n https://a\n https://host/repo/\nSuites: /\n\nURIs: q\nSuites: r\n",
        "URIs: q\nSuites: r\n",
    ),
    ("x.sources", "# URIs: https://host/repo\nTypes: deb\nURIs: https://a\nSuites: /\n", "unchanged"),
]


@pytest.mark.parametrize(("name", "text", "left"), SOURCES)
def test_stale_entries(name: str, text: str, left: str | None) -> None:
    found = _apt_sources.without_repository(name, text, "https://host/repo", "/")
    assert found == (text if left == "unchanged" else left)


@pytest.mark.parametrize(
    ("components", "suite", "expected"),
    [
        ((), "/", "Suites: /\nSigned-By"),
        (("main", "extra"), "stable", "Suites: stable\nComponents: main extra\nSigned-By"),
    ],
)
def test_source(components: t.Sequence[str], suite: str, expected: str) -> None:
    text = _apt_sources.render_source("https://h/r", suite, components, [], "/etc/apt/keyrings/x.gpg")
    assert expected in text


def test_regular_expressions_for_unattended_upgrades() -> None:
    text = _apt_sources.render_unattended(["libstdc++6", "nvidia-*"])
    assert text is not None
    assert '"^libstdc[+][+]6$";' in text and '"^nvidia-.*$";' in text
