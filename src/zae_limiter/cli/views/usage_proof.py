"""The proof of usage as a table, with every gap in words."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import UsageChain, UsageGap, UsageProof
from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, Row, table
from zae_limiter.cli.views.formats import NOTHING, iso, plural

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


class Proofs:
    """The proofs of many entities: how many there were, and those that do not hold."""

    def __init__(self, resource: str | None) -> None:
        self.resource = resource
        self.entities = 0
        self.chains = 0
        self.behind = 0
        self.broken: list[UsageProof] = []

    def add(self, proof: UsageProof) -> None:
        """Count one more, unless there was nothing to prove; keep it if it does not hold."""
        if not proof.chains:
            return
        self.entities += 1
        self.chains += len(proof.chains)
        self.behind += any(chain.behind for chain in proof.chains)
        if not proof.holds:
            self.broken.append(proof)


def proofs_document(proofs: Proofs) -> dict[str, Any]:
    """The proofs of all entities for programs."""
    return {
        "resource": proofs.resource,
        "holds": not proofs.broken,
        "entities": proofs.entities,
        "chains": proofs.chains,
        "behind": proofs.behind,
        "broken": [proof_document(proof) for proof in proofs.broken],
    }


def proofs_picture(output: Output, proofs: Proofs) -> RenderableType:
    """The same for people."""
    if not proofs.entities:
        return Text("there is no usage and no bucket: nothing to prove")
    pictures = [part for proof in proofs.broken for part in (proof_picture(output, proof), Text())]
    seen = f"{plural(proofs.entities, 'entity')}, {plural(proofs.chains, 'chain')} of hours"
    if proofs.broken:
        words = Text(f"{seen}: the usage of {len(proofs.broken):,} is not what was taken", style="red")
    elif proofs.behind:
        late = f"{proofs.behind:,} {'has' if proofs.behind == 1 else 'have'}"
        words = Text(f"{seen}: usage is what was taken, up to where the aggregator is; {late} used more since")
    else:
        words = Text(f"{seen}: usage is what was taken, every hour begins where the one before ended")
    return Group(*pictures, words)


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
        "counts": chain.counts,
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
        what_is_counted(chain),
        str(chain.shard),
        chain.life or NOTHING,
        f"{chain.hours:,}",
        f"{chain.counted:,}",
        bucket_in_words(chain),
        Text("broken", style="red") if chain.gaps else Text("whole", style="green"),
    )


def what_is_counted(chain: UsageChain) -> str:
    """The limit, and what of it is counted if that is not what was taken."""
    name = (chain.limit_name or GRANTS).replace("!", " would refuse")
    return f"{name} {chain.counts}" if chain.counts in ("cascaded", "denials") else name


def bucket_in_words(chain: UsageChain) -> str:
    """How a chain compares with the bucket."""
    if chain.behind is None:
        return "gone"
    words = f"{chain.behind:+,} since" if chain.behind else "equal"
    return f"{words}, {chain.expired:,} expired" if chain.expired else words


def gap_in_words(chain: UsageChain, gap: UsageGap) -> str:
    """Where a chain breaks, and what is missing there."""
    where = f"{chain.resource} {what_is_counted(chain)}, shard {chain.shard}"
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
