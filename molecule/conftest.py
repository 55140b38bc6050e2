"""testinfra's view of the scenario's nodes: over ssh, as a person would look."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import testinfra

sys.path.insert(0, str(Path(__file__).parent))

from nodes import connect, nodes


@pytest.fixture(scope="module", params=[node["name"] for node in nodes()])
def node(request: pytest.FixtureRequest) -> dict:
    """One node as the rack describes it."""
    return next(node for node in nodes() if node["name"] == request.param)


@pytest.fixture(scope="module")
def host(node: dict) -> testinfra.host.Host:
    return connect(node)


@pytest.fixture(scope="module")
def rails(node: dict) -> list[str]:
    """Names of the node's rail interfaces."""
    return [nic["name"] for nic in node["nics"] if nic["network"].startswith("rail")]
