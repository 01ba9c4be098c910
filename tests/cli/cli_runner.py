"""Running commands as a shell would, without a shell: the same entry, a clock that stands still, captured output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import quote

import pytest

from engines.servers import Engine
from support.dynamodb.aggregated_store import Aggregated
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.cli.entry import main
from zae_limiter.cli.session import Dependencies, default_dependencies
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.protocol import Store
from zae_limiter.testing import FakeClock

TABLES = count()
PATIENCE_S = 20.0
"""An engine beside the tests on a busy machine may take its time."""

SETTINGS = ("ZAEL_URL", "ZAEL_NAMESPACE", "ZAEL_PRINCIPAL", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")


class Ran(NamedTuple):
    """How a command went."""

    code: int
    out: str
    err: str


class CommandRunner:
    """A store, a clock, and everything typed at it."""

    def __init__(self, open_store: Callable[[], Store], *, url: str | None = None) -> None:
        self.clock = FakeClock()
        self.url = url
        self._open_store = open_store

    def run(self, *words: str, width: int | None = 80, environment: Mapping[str, str] | None = None) -> Ran:
        """Type a command."""
        settings = {"ZAEL_PRINCIPAL": "ann", **({"COLUMNS": str(width)} if width else {}), **(environment or {})}
        dependencies = Dependencies(lambda url: self._open_store(), self.clock)
        out, err = StringIO(), StringIO()
        no_terminal = patch.object(sys, "stdin", StringIO())
        with plain_environment(settings), no_terminal, redirect_stdout(out), redirect_stderr(err):
            code = main(words, dependencies)
        return Ran(code, out.getvalue(), err.getvalue())

    @contextmanager
    def limiter(self) -> Iterator[SyncRateLimiter]:
        """The same store, for Python."""
        with SyncRepository(self._open_store(), clock=self.clock) as repository:
            yield SyncRateLimiter(repository)


@contextmanager
def plain_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Nothing set but these."""
    with patch.dict(os.environ, settings):
        for name in SETTINGS:
            if name not in settings:
                os.environ.pop(name, None)
        yield


class Kept:
    """A store that stays open however often it is closed."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def close(self) -> None:
        """Not yet."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def sqlite_url(folder: Path) -> str:
    """The URL of a file in a folder."""
    return f"sqlite:///{quote(str(folder / 'limits.db'))}"


def sqlite_stage(request: pytest.FixtureRequest) -> CommandRunner:
    """On a file of its own, opened for each command as the installed command does."""
    url = sqlite_url(request.getfixturevalue("tmp_path"))
    SyncRepository.open(url, create=True).close()
    return CommandRunner(lambda: default_dependencies().open_store(url), url=url)


def dynamodb_stage(request: pytest.FixtureRequest) -> CommandRunner:
    """On a table of its own, whose usage is always up to date."""
    engine: Engine = request.getfixturevalue("dynoxide")
    table = f"cli-{os.getpid()}-{next(TABLES)}"
    url = f"dynamodb://{table}?region={engine.region}&endpoint_url={engine.endpoint_url}"
    repository = SyncRepository.open(url, create=True, deadline=PATIENCE_S)
    store = DynamoStore(table, Target(engine.region, engine.endpoint_url), deadline=PATIENCE_S)

    def remove() -> None:
        store.close()
        repository.delete_table()
        repository.close()

    request.addfinalizer(remove)
    return CommandRunner(lambda: Kept(Aggregated(store)))


STAGES = {"sqlite": sqlite_stage, "dynamodb": dynamodb_stage}
