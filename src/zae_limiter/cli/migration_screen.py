"""A migration on the screen: a bar while it runs on a terminal, and a report at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zae_limiter.cli.views.formats import plural
from zae_limiter.migrations.census import Census
from zae_limiter.migrations.item_kinds import Kind
from zae_limiter.migrations.table_indexes import IndexReport
from zae_limiter.migrations.table_migration import OnProgress, Progress, Report

NAMED: Mapping[str, str] = {Kind.OLD_USAGE: "old usage window"}
"""Kinds whose own name has no plural."""


@contextmanager
def migration_screen() -> Iterator[OnProgress | None]:
    """A callback that shows progress; ``None`` where there is no terminal to show it on."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", total=None)

        def on_progress(progress: Progress) -> None:
            words = str(progress).partition(",")[0]
            bars.update(task, description=words, completed=progress.seen, total=max(progress.total, progress.seen))

        yield on_progress


def report_in_words(report: Report, *, dry_run: bool) -> str:
    """What was found and done, in lines."""
    lines = []
    if dry_run:
        lines.append(
            f"table {report.table} has layout {report.before_layout}; this version uses {report.current_layout}"
        )
        found = [f"  {plural(count, NAMED.get(kind, kind))}" for kind, count in sorted(report.census.old.items())]
        lines += ["to convert:", *found] if found else ["nothing to convert"]
        lines.append(f"altogether: {_census_in_words(report.census)}")
    lines += _indexes_in_words(report.indexes)
    if not dry_run and not report.done:
        lines.append(
            f"table {report.table} has layout {report.after_layout} already, {_nothing_or_indexes(report)} changed"
        )
    for done in report.done:
        lines.append(f"{done.migration.title}: {plural(done.converted, 'item')} converted")
        lines.append(f"  before  {_census_in_words(done.before)}")
        lines.append(f"  after   {_census_in_words(done.after)}")
        if done.expired:
            lines.append(f"  {plural(done.expired, 'limit')} of full buckets expired during the migration")
    if report.done:
        lines.append(f"table {report.table} has layout {report.after_layout} now")
    if report.unreadable:
        lines.append("could not be read, and stays as it is:")
        lines += [f"  {where}" for where in report.unreadable]
    return "\n".join(lines)


def _indexes_in_words(indexes: IndexReport) -> list[str]:
    lines = [f"index {index} is missing, and will be made" for index in indexes.missing]
    lines += [f"index {index} made" for index in indexes.added]
    lines += [f"index {index} replaced: it holds keys only now" for index in indexes.replaced]
    lines += [
        f"index {index} holds more than keys, so what is written is paid twice; --replace-indexes makes it anew"
        for index in indexes.wide
    ]
    return lines


def _nothing_or_indexes(report: Report) -> str:
    return "only its indexes" if report.indexes.added or report.indexes.replaced else "nothing"


def _census_in_words(census: Census) -> str:
    things = [f"{count:,} {thing}" for thing, count in sorted(census.there.items())]
    return f"{', '.join(things) or 'nothing'}; {_tokens(census.consumed)} counted, {_tokens(census.missing)} missing"


def _tokens(milli: int) -> str:
    return f"{milli / 1000:,.3f} tokens"


def migration_document(report: Report, *, dry_run: bool) -> dict[str, Any]:
    """What was found and done, for programs. Amounts are millitokens."""
    return {
        "table": report.table,
        "dry_run": dry_run,
        "before_layout": report.before_layout,
        "after_layout": report.after_layout,
        "census": report.census.as_record(),
        "migrations": [
            {
                "before_layout": done.migration.before,
                "after_layout": done.migration.after,
                "converted": done.converted,
                "before": done.before.as_record(),
                "after": done.after.as_record(),
                "expired": done.expired,
            }
            for done in report.done
        ],
        "indexes": {name: list(indexes) for name, indexes in report.indexes._asdict().items()},
        "unreadable": list(report.unreadable),
    }
