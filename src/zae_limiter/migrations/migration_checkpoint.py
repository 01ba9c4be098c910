"""How far a migration came, kept in the table itself.

There is one checkpoint, in the partition of the registry. It has the migration's moment, the phase, the key after
which to go on, and the sums so far, all in one item and so never apart. ``run`` names the process that works on it: a
run that continues puts its own name there, and one that finds another name stops. So a run that was thought dead does
no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter.exceptions import VersionError
from zae_limiter.migrations.census import THINGS, Census
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.expressions import Write, delete, put, update
from zae_limiter.stores.dynamodb.items import decoder
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import REGISTRY, Key, decode_item, pk_system
from zae_limiter.stores.dynamodb.table_client import Deadline, Overtaken, TableClient, commit

CHECKPOINT_KEY = Key(pk_system(REGISTRY), "#MIGRATION")

SURVEY, CONVERT, VERIFY = "survey", "convert", "verify"


class Position(NamedTuple):
    """Where a migration is: its phase, the key after which to go on, and what was counted and converted so far."""

    before_layout: int
    at: int
    phase: str = SURVEY
    after: Key | None = None
    before: Census = Census()
    verified: Census = Census()
    seen: int = 0
    converted: int = 0


class Checkpoint(NamedTuple):
    """A position as the table has it, and how many things became one on the way there."""

    position: Position
    joined: Mapping[str, int]


def load(client: TableClient, until: Deadline) -> Plan[Checkpoint | None]:
    """The position of a migration that is under way."""
    item = yield from client.get(CHECKPOINT_KEY, until)
    return None if item is None else checkpoint_in(item)


@decoder("the position of a migration")
def checkpoint_in(item: Item) -> Checkpoint:
    """A position from its item. Raises ``BrokenItem``."""
    fields = decode_item(item)
    after = fields.get("after")
    joined = {thing: fields[f"joined_{thing}"] for thing in THINGS if f"joined_{thing}" in fields}
    return Checkpoint(
        Position(
            fields["before_layout"],
            fields["at"],
            fields["phase"],
            None if after is None else Key(*after),
            Census(**fields["before"]),
            Census(**fields["verified"]),
            fields["seen"],
            fields["converted"],
        ),
        joined,
    )


def attributes_of(position: Position) -> dict[str, Any]:
    """A position as attributes."""
    return {
        **position._asdict(),
        "after": None if position.after is None else list(position.after),
        "before": position.before.as_record(),
        "verified": position.verified.as_record(),
    }


def take_over(client: TableClient, position: Position, run: str, until: Deadline) -> Plan[None]:
    """Begin here, or continue what another run began."""
    sets = {**attributes_of(position), "run": run}
    yield from commit(client, [update(client.table, CHECKPOINT_KEY, {}, sets=sets)], until)


def save(client: TableClient, position: Position, run: str, until: Deadline) -> Plan[None]:
    """Note how far it came. Raises ``VersionError`` if another run has taken over."""
    write = update(client.table, CHECKPOINT_KEY, {"run": run}, sets=attributes_of(position))
    try:
        yield from commit(client, [write], until)
    except Overtaken:
        raise VersionError(
            f"another process has taken over the migration of table {client.table!r}; this one ends"
        ) from None


def beginning(client: TableClient, position: Position, run: str) -> Write:
    """The write that puts the beginning of the next migration in the place of this run's checkpoint."""
    return put(client.table, CHECKPOINT_KEY, {**attributes_of(position), "run": run}, {"run": run})


def removal(client: TableClient, run: str) -> Write:
    """The write that removes the checkpoint of this run."""
    return delete(client.table, CHECKPOINT_KEY, {"run": run})
