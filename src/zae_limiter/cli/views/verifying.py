"""The proof of usage as a table, with every gap in words."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter.cli.printing.paper import Paper
from zae_limiter.cli.printing.tables import Column, Row, table
from zae_limiter.cli.views.words import NOTHING
from zae_limiter.models.moments import at
from zae_limiter_aggregator.verifying import Gap, Link, Proof

COLUMNS = (
    Column("resource"),
    Column("limit"),
    Column("shard", numbers=True),
    Column("life"),
    Column("hours", numbers=True),
    Column("counted", numbers=True),
    Column("bucket"),
    Column("chain", rigid=True),
)

GRANTS = "(grants)"


def proof_document(entity_id: str, resource: str | None, proof: Proof) -> dict[str, Any]:
    """A proof for programs."""
    return {
        "entity_id": entity_id,
        "resource": resource,
        "holds": proof.holds,
        "chained": proof.chained,
        "chains": [_link_document(link) for link in proof.links],
    }


def _link_document(link: Link) -> dict[str, Any]:
    return {
        "resource": link.resource,
        "limit_name": link.limit_name,
        "shard": link.shard,
        "life": link.life,
        "hours": link.hours,
        "counted": link.counted,
        "expired": link.expired,
        "behind": link.behind,
        "gaps": [{"after": _hour(gap.after), "before": _hour(gap.before), "amount": gap.amount} for gap in link.gaps],
    }


def _hour(hour: int | None) -> str | None:
    return None if hour is None else at(hour).isoformat()


def proof_picture(paper: Paper, entity_id: str, proof: Proof) -> RenderableType:
    """A proof for people."""
    if not proof.links:
        return Text(f"{entity_id} has no usage and no buckets: nothing to prove")
    gaps = [gap_in_words(link, gap) for link in proof.links for gap in link.gaps]
    drawn = table(paper, COLUMNS, [_row(link) for link in proof.links])
    return Group(drawn, Text(), *(Text(words, style="red") for words in gaps), Text(verdict(entity_id, proof)))


def _row(link: Link) -> Row:
    return (
        link.resource,
        link.limit_name or GRANTS,
        str(link.shard),
        link.life or NOTHING,
        f"{link.hours:,}",
        f"{link.counted:,}",
        bucket_in_words(link),
        Text("broken", style="red") if link.gaps else Text("whole", style="green"),
    )


def bucket_in_words(link: Link) -> str:
    """How a chain compares with the bucket."""
    if link.behind is None:
        return "gone"
    words = f"{link.behind:+,} since" if link.behind else "equal"
    return f"{words}, {link.expired:,} expired" if link.expired else words


def gap_in_words(link: Link, gap: Gap) -> str:
    """Where a chain breaks, and what is missing there."""
    what = f"{link.resource} {link.limit_name or GRANTS}, shard {link.shard}: {gap.amount:+,}"
    if gap.before is None:
        return f"{what} in the bucket but in no hour; where cannot be told"
    if gap.after is None:
        return f"{what} before the first hour, {_moment(gap.before)}"
    return f"{what} between the hours {_moment(gap.after)} and {_moment(gap.before)}, and in neither"


def _moment(hour: int) -> str:
    return f"{at(hour):%Y-%m-%d %H:%M}"


def verdict(entity_id: str, proof: Proof) -> str:
    """The result in a sentence."""
    if not proof.holds:
        return f"the usage of {entity_id} is not what was taken"
    if any(link.behind for link in proof.links):
        return f"the usage of {entity_id} is what was taken, up to where the aggregator is"
    if proof.chained:
        return f"the usage of {entity_id} is what was taken: every hour begins where the one before ended"
    return f"the usage of {entity_id} is what was taken: its hours add up to what the buckets counted"
