"""A provider that bills, for every test that calls one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zae_limiter.testing import FakeProvider


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider
