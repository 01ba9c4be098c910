"""One running engine of each kind for the whole test run, started by the first test that asks for it.

Tests share the engines, so each uses tables of its own. Both keep everything in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.servers import Engine, dynoxide_engine, ministack_engine


def _running(engine: Engine) -> Iterator[Engine]:
    missing = engine.why_not_here()
    if missing:
        pytest.skip(missing)  # a failure where CI is set: support/no_skips_in_ci.py
    with engine:
        yield engine


@pytest.fixture(scope="session")
def ministack() -> Iterator[Engine]:
    """MiniStack: most of AWS, forgiving."""
    yield from _running(ministack_engine())


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[Engine]:
    """dynoxide: DynamoDB only, strict, with exact capacity figures."""
    yield from _running(dynoxide_engine())


@pytest.fixture(scope="session", params=["ministack", "dynoxide"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine, one after the other."""
    running: Engine = request.getfixturevalue(request.param)
    return running
