"""A roll-out as it happens, on stderr: on a terminal with what is under way below, elsewhere a line for each event."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import click

from zae_limiter.cli.output.console import shown
from zae_limiter.infra.change_sets import Changes
from zae_limiter.infra.rollouts import StepsTaken
from zae_limiter.infra.stack_events import StackEvent

Listener: TypeAlias = Callable[[Any], None]


@contextmanager
def rollout_screen(words: str) -> Iterator[Listener]:
    """Who to tell what happens. Whoever interrupts is told that CloudFormation goes on."""
    try:
        if sys.stderr.isatty():
            with _live(words) as listener:
                yield listener
        else:
            yield _line
    except KeyboardInterrupt:
        click.echo("CloudFormation goes on by itself; run the same again to follow it", err=True)
        raise


def in_words(news: Any) -> str:
    """News in a line."""
    match news:
        case StackEvent():
            reason = f"  {news.reason}" if news.reason else ""
            return shown(f"{news.time:%H:%M:%S}  {news.state:<27} {news.resource}{reason}")
        case Changes(changes=changes):
            return f"{len(changes)} of the stack's resources {'changes' if len(changes) == 1 else 'change'}"
        case StepsTaken(words=words):
            return words
    return str(news)


def _line(news: Any) -> None:
    click.echo(in_words(news), err=True)


@contextmanager
def _live(words: str) -> Iterator[Listener]:
    """Events as lines, and below them what is under way and for how long."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    console = Console(stderr=True, highlight=False, markup=False)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    under_way: set[str] = set()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(words)

        def listen(news: Any) -> None:
            progress.console.print(Text(in_words(news), style=_style(news)))
            if isinstance(news, StackEvent) and not news.of_the_stack:
                (under_way.add if news.state.endswith("_IN_PROGRESS") else under_way.discard)(news.resource)
                waiting = ", ".join(sorted(under_way))
                progress.update(task, description=f"{words}: {waiting}" if waiting else words)

        yield listen


def _style(news: Any) -> str:
    if not isinstance(news, StackEvent):
        return "bold"
    if news.failed or "ROLLBACK" in news.state:
        return "red"
    return "dim" if news.state.endswith("_IN_PROGRESS") else "green"
