"""The events of a roll-out on stderr: on a terminal with what is under way below them, elsewhere a line for each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import click

from zae_limiter.cli.output.console import shown
from zae_limiter.infra.change_sets import Changes
from zae_limiter.infra.rollouts import ProgressNote
from zae_limiter.infra.stack_events import StackEvent

Listener: TypeAlias = Callable[[Any], None]


@contextmanager
def rollout_screen(words: str) -> Iterator[Listener]:
    """A listener for events. After Ctrl-C a line says that CloudFormation continues."""
    try:
        if sys.stderr.isatty():
            with _live(words) as listener:
                yield listener
        else:
            yield _line
    except KeyboardInterrupt:
        click.echo("CloudFormation continues on its own; run the same command again to follow it", err=True)
        raise


def event_in_words(event: Any) -> str:
    """An event in one line."""
    match event:
        case StackEvent():
            reason = f"  {event.reason}" if event.reason else ""
            return shown(f"{event.time:%H:%M:%S}  {event.state:<27} {event.resource}{reason}")
        case Changes(changes=changes):
            return f"{len(changes)} of the stack's resources {'changes' if len(changes) == 1 else 'change'}"
        case ProgressNote(words=words):
            return words
    return str(event)


def _line(event: Any) -> None:
    click.echo(event_in_words(event), err=True)


@contextmanager
def _live(words: str) -> Iterator[Listener]:
    """Events as lines, and below them what CloudFormation is working on, and for how long."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    console = Console(stderr=True, highlight=False, markup=False)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    under_way: set[str] = set()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(words)

        def listen(event: Any) -> None:
            progress.console.print(Text(event_in_words(event), style=_style(event)))
            if isinstance(event, StackEvent) and not event.of_the_stack:
                (under_way.add if event.state.endswith("_IN_PROGRESS") else under_way.discard)(event.resource)
                waiting = ", ".join(sorted(under_way))
                progress.update(task, description=f"{words}: {waiting}" if waiting else words)

        yield listen


def _style(event: Any) -> str:
    if not isinstance(event, StackEvent):
        return "bold"
    if event.failed or "ROLLBACK" in event.state:
        return "red"
    return "dim" if event.state.endswith("_IN_PROGRESS") else "green"
