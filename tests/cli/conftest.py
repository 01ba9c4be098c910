"""A stage for commands."""

from __future__ import annotations

import pytest
from cli_runner import STAGES, Stage, sqlite_stage


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Stage:
    """A stage on SQLite."""
    return sqlite_stage(request)


@pytest.fixture(params=STAGES)
def any_stage(request: pytest.FixtureRequest) -> Stage:
    """A stage on every store."""
    return STAGES[request.param](request)
