"""Machines for the tests: one pair at a time, whatever network managers a module asks for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import image_cache
from machines import Pair


@pytest.fixture(scope="session")
def image() -> image_cache.Image:
    try:
        return image_cache.image()
    except image_cache.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def pair(image: image_cache.Image, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two fresh machines; a module that wants other network managers gives them as the fixture's parameter."""
    with Pair(image, getattr(request, "param", ("networkd", "networkd"))) as machines:
        yield machines
