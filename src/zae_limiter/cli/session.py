"""The session of a command: an open limiter, and where its answer goes.

An answer has two forms. For people it is a picture, drawn only if it is shown; for programs it is one JSON document
(see ``schemas/documents.json``). Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from zae_limiter.cli.output.progress import CountingStore

if TYPE_CHECKING:
    from rich.console import RenderableType

    from zae_limiter import SyncRateLimiter, SyncRepository
    from zae_limiter.cli.output.console import Output
    from zae_limiter.cli.output.text_tables import Column, Row
    from zae_limiter.cli.pages import Pages
    from zae_limiter.running.clocks import Clock
    from zae_limiter.stores.protocol import Store

Item = TypeVar("Item")

DEADLINE_S = 10.0
"""How long one request to the store may take: a person would rather wait than try again."""


class Dependencies(NamedTuple):
    """The store and the clock of a session; tests replace them."""

    open_store: Callable[[str | None], Store]
    clock: Clock


class Session:
    """What one command works with."""

    def __init__(
        self,
        url: str | None,
        namespace: str,
        *,
        as_json: bool,
        create: bool = True,
        dependencies: Dependencies | None = None,
    ) -> None:
        """``create``: a SQLite file that is not there is made; otherwise it is an error."""
        self.url = url
        self.namespace = namespace
        self.as_json = as_json
        self._create = create
        self._dependencies = dependencies or default_dependencies()

    @cached_property
    def store(self) -> CountingStore:
        """The store itself."""
        store = self._dependencies.open_store(self.url)
        if not self._create:
            check_existence(store, named=self.url is not None)
        return CountingStore(store)

    @cached_property
    def limiter(self) -> SyncRateLimiter:
        """The limiter of this namespace of the store. Opening creates no table."""
        from zae_limiter import SyncRateLimiter, SyncRepository

        clock = self._dependencies.clock
        return SyncRateLimiter(SyncRepository(self.store, namespace=self.namespace, clock=clock))

    @property
    def repository(self) -> SyncRepository:
        """The repository of the limiter, for namespaces."""
        return self.limiter.repository

    @cached_property
    def output(self) -> Output:
        """Standard output, as a console."""
        from zae_limiter.cli.output.console import stdout

        return stdout()

    def now_ms(self) -> int:
        """The time, in milliseconds since the epoch."""
        return self._dependencies.clock()

    def close(self) -> None:
        """Close the store, if it was opened; what its limiter has yet to write is written before."""
        if "limiter" in vars(self):
            self.limiter.repository.close()
        elif "store" in vars(self):
            self.store.close()

    # Answers

    def answer(self, document: Mapping[str, Any], picture: Callable[[], RenderableType | str]) -> None:
        """The whole answer of a command."""
        if self.as_json:
            from zae_limiter.cli.output.documents import whole

            click.echo(whole(document))
        else:
            self.output.show(picture())

    def say(self, document: Mapping[str, Any], words: str) -> None:
        """The answer of a command that has nothing to draw."""
        self.answer(document, lambda: words)

    def list(
        self,
        name: str,
        pages: Pages[Item],
        document: Callable[[Item], Mapping[str, Any]],
        columns: Sequence[Column],
        rows: Callable[[Item], Sequence[Row]],
        *,
        nothing: str,
    ) -> None:
        """A list of any length, page by page as it comes."""
        if self.as_json:
            from zae_limiter.cli.output.documents import streamed

            for piece in streamed(name, (document(item) for page in pages for item in page), lambda: pages.more):
                click.echo(piece, nl=False)
            return
        from zae_limiter.cli.output.text_tables import print_rows

        drawn = ([row for item in page for row in rows(item)] for page in pages)
        if not print_rows(self.output, columns, drawn):
            self.output.show(nothing)
        if pages.more:
            note(f"stopped at {pages.seen:,}; there are more")

    @contextmanager
    def progress(self, words: str) -> Iterator[None]:
        """Show that work goes on, once it has gone on for a second."""
        from zae_limiter.cli.output.progress import spinner

        with spinner(words, lambda: self.store.requests):
            yield


def check_existence(store: Store, *, named: bool) -> None:
    """Refuse a store in a file that is not there. ``named``: the operator said which file."""
    match store.identity:
        case ("sqlite", str(path)) if not Path(path).exists():
            advice = "is the path right?" if named else "nothing was stored yet."
            raise click.ClickException(
                f"there is no database {path}: {advice} Commands that set limits or take tokens make one; "
                "so does --create"
            )


def default_dependencies() -> Dependencies:
    """The store that the URL names, and the machine's clock."""
    from zae_limiter.running.clocks import machine_clock

    return Dependencies(_open_store, machine_clock)


def _open_store(url: str | None) -> Store:
    """A store as an application would open it, with a longer deadline."""
    from zae_limiter.stores.open_store import open_store

    return open_store(url, deadline=DEADLINE_S, options={})


def exit_with(code: int) -> NoReturn:
    """End the command with an exit code."""
    click.get_current_context().exit(code)


def note(words: str) -> None:
    """Print something beside the answer, to stderr."""
    from zae_limiter.cli.output.console import shown

    click.echo(shown(words), err=True)
