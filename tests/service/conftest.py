"""What the tests of the service have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.service_world import ServiceWorld, service_world


@pytest.fixture
def world() -> Iterator[ServiceWorld]:
    """A service in memory, without tokens."""
    with service_world() as ready:
        yield ready
