"""The proof of usage as a table, with every gap in words."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import UsageChain, UsageGap, UsageProof
from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, Row, table
from zae_limiter.cli.views.formats import NOTHING, iso

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


def proof_document(proof: UsageProof) -> dict[str, Any]:
    """A proof for programs."""
    return {
        "entity_id": proof.entity_id,
        "resource": proof.resource,
        "holds": proof.holds,
        "chains": [_chain_document(chain) for chain in proof.chains],
    }


def _chain_document(chain: UsageChain) -> dict[str, Any]:
    return {
        "resource": chain.resource,
        "limit_name": chain.limit_name,
        "shard": chain.shard,
        "life": chain.life,
        "hours": chain.hours,
        "counted": chain.counted,
        "expired": chain.expired,
        "behind": chain.behind,
        "gaps": [{"after": iso(gap.after), "before": iso(gap.before), "amount": gap.amount} for gap in chain.gaps],
    }


def proof_picture(output: Output, proof: UsageProof) -> RenderableType:
    """A proof for people."""
    if not proof.chains:
        return Text(f"{proof.entity_id} has no usage and no buckets: nothing to prove")
    gaps = [gap_in_words(chain, gap) for chain in proof.chains for gap in chain.gaps]
    drawn = table(output, COLUMNS, [_row(chain) for chain in proof.chains])
    return Group(drawn, Text(), *(Text(words, style="red") for words in gaps), Text(verdict(proof)))


def _row(chain: UsageChain) -> Row:
    return (
        chain.resource,
        chain.limit_name or GRANTS,
        str(chain.shard),
        chain.life or NOTHING,
        f"{chain.hours:,}",
        f"{chain.counted:,}",
        bucket_in_words(chain),
        Text("broken", style="red") if chain.gaps else Text("whole", style="green"),
    )


def bucket_in_words(chain: UsageChain) -> str:
    """How a chain compares with the bucket."""
    if chain.behind is None:
        return "gone"
    words = f"{chain.behind:+,} since" if chain.behind else "equal"
    return f"{words}, {chain.expired:,} expired" if chain.expired else words


def gap_in_words(chain: UsageChain, gap: UsageGap) -> str:
    """Where a chain breaks, and what is missing there."""
    where = f"{chain.resource} {chain.limit_name or GRANTS}, shard {chain.shard}"
    if gap.before is None and gap.amount < 0:
        return f"{where}: the last hour is {-gap.amount:,} ahead of the bucket"
    what = f"{where}: {gap.amount:+,}"
    if gap.before is None:
        return f"{what} in the bucket, and in no hour"
    if gap.after is None:
        return f"{what} before the first hour, {_moment(gap.before)}"
    return f"{what} between the hours {_moment(gap.after)} and {_moment(gap.before)}, and in neither"


def _moment(hour: datetime) -> str:
    return f"{hour:%Y-%m-%d %H:%M}"


def verdict(proof: UsageProof) -> str:
    """The result in a sentence."""
    if not proof.holds:
        return f"the usage of {proof.entity_id} is not what was taken"
    if any(chain.behind for chain in proof.chains):
        return f"the usage of {proof.entity_id} is what was taken, up to where the aggregator is"
    return f"the usage of {proof.entity_id} is what was taken: every hour begins where the one before ended"
