"""The summary of a demo: what happened, what the store says was used, and the proof.

Pure functions from what happened to something printable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from zae_limiter.cli.demo.proof import CLAIMS, Account
from zae_limiter.cli.demo.scenario import BucketId
from zae_limiter.cli.demo.tally import Ending, Tally
from zae_limiter.cli.output.bars import DEBT, count, level_number, usage_bar
from zae_limiter.cli.output.text_tables import ruled

SUMMARY_COLUMNS = 80
"""What every line of it fits in."""

WIDE = 90
"""Columns from which the proof also says where each limit comes from."""

BAR = 11
LEGEND = "granted: when admitted; over: settled on top; refill: rate times {:.1f} s"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that is known at the end."""

    elapsed_ms: int
    stopped_early: bool
    tally: Tally
    usage: Mapping[BucketId, Mapping[str, int]]
    """Per key: whole tokens per limit, as the store's usage windows have them."""
    accounts: list[Account]

    @property
    def proven(self) -> bool:
        """Whether every claim holds for every limit."""
        return not any(account.broken for account in self.accounts)


def summary(outcome: Outcome, width: int) -> RenderableType:
    """The whole report."""
    return Group(
        _headline(outcome),
        Text("\nUsage by key, from the store's usage windows", style="bold"),
        _usage(outcome),
        Text("\nProof, for every limit of every bucket", style="bold"),
        Text(LEGEND.format(outcome.elapsed_ms / 1000), style="dim"),
        _proof(outcome.accounts, width),
        Text(),
        *_claims(outcome.accounts),
        Text(),
        _verdict(outcome),
    )


def _headline(outcome: Outcome) -> Text:
    tally = outcome.tally
    early = "stopped after " if outcome.stopped_early else ""
    line = Text(f"{early}{outcome.elapsed_ms / 1000:.1f} s: ")
    words = [
        (f"{tally.admitted.total():,} admitted", "green"),
        (f"{tally.ended(Ending.DENIED):,} denied", "yellow"),
        (f"{tally.ended(Ending.FAILED):,} failed and refunded", "magenta"),
        (f"{tally.ended(Ending.CUT_SHORT):,} cut short", ""),
    ]
    if unavailable := tally.ended(Ending.UNAVAILABLE):
        words.append((f"{unavailable:,} met an unavailable store", "red"))
    if tally.unresolved:
        words.append((f"{tally.unresolved:,} settlements unresolved", "red"))
    return line.append(Text(", ").join(Text(*word) for word in words))


def _usage(outcome: Outcome) -> Table:
    table = ruled()
    table.add_column("key", no_wrap=True)
    for heading in ("admitted", "denied", "failed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("tokens", "requests"):
        table.add_column(heading, min_width=BAR, no_wrap=True)
        table.add_column("", min_width=7 if heading == "tokens" else 5, justify="right", no_wrap=True)
    largest = {name: max((used.get(name, 0) for used in outcome.usage.values()), default=0) for name in ("tpm", "rpm")}
    tally = outcome.tally
    for bucket, used in outcome.usage.items():
        cells: list[RenderableType] = []
        for name, colour in (("tpm", "cyan"), ("rpm", "blue")):
            value = used.get(name, 0)
            cells += usage_bar(value, largest[name], BAR, colour), f"{value:,}"
        table.add_row(
            bucket.entity_id,
            count(tally.admitted[bucket]),
            count(tally.ended(Ending.DENIED, bucket), "yellow"),
            count(tally.ended(Ending.FAILED, bucket), "magenta"),
            *cells,
        )
    return table


def _proof(accounts: list[Account], width: int) -> Table:
    table = ruled()
    table.add_column("bucket", no_wrap=True)
    table.add_column("limit", no_wrap=True)
    if width >= WIDE:
        table.add_column("limits from", no_wrap=True, style="dim")
    for heading in ("granted", "over", "used", "left", "burst", "refill"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    shown: BucketId | None = None
    resource = None
    for account in accounts:
        if account.bucket.resource != resource:
            resource = account.bucket.resource
            table.add_row(Text(f"on {resource}", style="bold cyan"))
        cells: list[RenderableType] = ["" if account.bucket == shown else account.bucket.entity_id]
        shown = account.bucket
        cells.append(account.limit.name)
        if width >= WIDE:
            cells.append(account.source)
        table.add_row(
            *cells,
            f"{account.granted:,}",
            count(account.over, "red"),
            f"{account.used:,}",
            level_number(account.left),
            f"{account.limit.burst:,}",
            f"{account.refill:,}",
            _ticks(account),
        )
    return table


def _ticks(account: Account) -> Text:
    ticks = Text()
    for claim in CLAIMS:
        ticks.append("✗" if claim in account.broken else "✓", DEBT if claim in account.broken else "green")
    return ticks


def _claims(accounts: list[Account]) -> list[Text]:
    """Each claim with how often it holds, and every account for which it does not."""
    lines = []
    for claim in CLAIMS:
        failing = [account for account in accounts if claim in account.broken]
        mark = ("✗ ", DEBT) if failing else ("✓ ", "green")
        held = f"{len(accounts) - len(failing):2}/{len(accounts)}"
        lines.append(Text.assemble(mark, f"{held} ", (f"{claim.formula:30}", "bold"), claim.meaning))
        lines += [Text(f"  broken: {account}", style="red") for account in failing]
    return lines


def _verdict(outcome: Outcome) -> Text:
    if outcome.proven:
        return Text("Proven: every limit held and every counter is exact.", style="bold green")
    return Text("NOT PROVEN: see the broken claims above.", style=DEBT)
