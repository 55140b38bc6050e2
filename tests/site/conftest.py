"""One rack for the whole session; a test that needs a fresh one resets it, and leaves it as it likes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rack import Rack


@pytest.fixture(scope="session")
def session_rack() -> Iterator[Rack]:
    with Rack().standing() as rack:
        yield rack


@pytest.fixture(scope="module")
def fresh(session_rack: Rack) -> Rack:
    """A rack of bare nodes."""
    session_rack.reset()
    return session_rack


@pytest.fixture(scope="module")
def converged(session_rack: Rack) -> Rack:
    """A rack on which the site was run; quick when it was already."""
    session_rack.up()
    session_rack.converge()
    return session_rack
