"""A stage for commands."""

from __future__ import annotations

import pytest
from cli_runner import STAGES, CommandRunner, sqlite_stage


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> CommandRunner:
    """A stage on SQLite."""
    return sqlite_stage(request)


@pytest.fixture(params=STAGES)
def any_runner(request: pytest.FixtureRequest) -> CommandRunner:
    """A stage on every store."""
    return STAGES[request.param](request)
