"""Following a table's stream: everything there is now, from where the last pass ended.

A stream is divided into shards that come and go; the records of a bucket may be in several, one after the other. A
shard is read when those that it came from were read to their ends. Any other order would do: records say the same
whenever they are processed. A position is only moved when everything before it was counted, so a reader that dies, or
two that read the same shard, do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import Refused, Reply
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter_aggregator.proactive_split import ProactiveSplit
from zae_limiter_aggregator.processor import Processed, Processor
from zae_limiter_aggregator.stream_records import Failure, Record, last_written

EMPTY_PAGES: Final = 5
"""After so many empty pages in a row an open shard has nothing more for now. (DynamoDB sends some in between, so the
next time goes on behind them.)"""

EMPTY_PAGES_OF_A_CLOSED_SHARD: Final = 100
"""Those of a shard that has an end are passed over until it is reached. (One engine tells of an end that is none.)"""

AFTER: Final = "AFTER_SEQUENCE_NUMBER"
OLDEST: Final = "TRIM_HORIZON"
ITERATOR_EXPIRED: Final = "ExpiredIteratorException"
TRIMMED: Final = "TrimmedDataAccessException"


class Position(NamedTuple):
    """How far a shard was counted: up to a sequence number, or to its end."""

    after: str | None = None
    finished: bool = False


Positions: TypeAlias = MutableMapping[str, Position]
"""How far each shard of one stream was counted, by its id. The caller keeps it between the passes."""


class Progress(NamedTuple):
    """What was done in one pass. ``trimmed`` are shards whose next records had left the stream unread."""

    records: int
    snapshots: int
    poisonous: tuple[Failure, ...]
    trimmed: tuple[str, ...]


class Shard(NamedTuple):
    """A part of a stream. ``closed``: nothing is added to it any more, so it can be read to its end."""

    id: str
    parent: str | None = None
    closed: bool = False


class Page(NamedTuple):
    """Some records of a shard that were just counted. ``written_s`` is about when the last of them was written."""

    shard: str
    processed: Processed
    written_s: float | None


AfterPage: TypeAlias = Callable[[Page], Plan[None]]
"""What is to be done whenever some records were counted."""


IsOwned: TypeAlias = Callable[[str], bool]
"""Whether this process is to read a shard."""


def every_shard(shard: str) -> bool:
    """For a process that follows a stream alone."""
    return True


class NoStream(Exception):
    """The table has no stream."""


class Follower:
    """Reads one table's streams into its snapshots."""

    def __init__(
        self,
        client: TableClient,
        *,
        empty_pages: int = EMPTY_PAGES,
        after_page: AfterPage | None = None,
        archiving: bool = False,
    ) -> None:
        self._client = client
        self._processor = Processor(client, archiving=archiving, split_bucket=ProactiveSplit(client))
        self._empty_pages = empty_pages
        self._after_page = after_page
        self._iterators: dict[str, tuple[Position, str]] = {}

    def stream(self) -> Plan[str]:
        """The table's newest stream. Raises :class:`NoStream`."""
        reply = yield from self._ask("DescribeTable", {"TableName": self._client.table})
        arn: str | None = reply["Table"].get("LatestStreamArn")
        if arn is None:
            raise NoStream(f"table {self._client.table!r} has no stream")
        return arn

    def catch_up(self, stream: str, positions: Positions, is_owned: IsOwned = every_shard) -> Plan[Progress]:
        """Count everything that is in the stream now, and move ``positions`` on the way.

        Shards that are not ``is_owned`` are left to other members.

        Poisonous records are told and passed over. Raises ``Refused`` or ``NoAnswer`` when something could not be
        read or written; what was counted until then is in ``positions``.
        """
        shards = parents_first((yield from self._shards(stream)))
        known = {shard.id for shard in shards}
        for gone in positions.keys() - known:
            del positions[gone]
        this_pass = _Pass((yield from self._client.new_deadline()).epoch_s)
        for shard in shards:
            if not is_owned(shard.id) or positions.get(shard.id, Position()).finished:
                continue
            above = shard.parent if shard.parent in known and is_owned(shard.parent) else None
            if above is None or positions.get(above, Position()).finished:
                yield from self._read(stream, shard, positions, this_pass)
        return Progress(this_pass.records, this_pass.snapshots, tuple(this_pass.poisonous), tuple(this_pass.trimmed))

    def _shards(self, stream: str) -> Plan[list[Shard]]:
        shards: list[Shard] = []
        after: dict[str, str] = {}
        while True:
            reply = yield from self._ask("DescribeStream", {"StreamArn": stream, **after})
            description = reply["StreamDescription"]
            shards += map(shard_of, description["Shards"])
            last = description.get("LastEvaluatedShardId")
            if last is None:
                return shards
            after = {"ExclusiveStartShardId": last}

    def _read(self, stream: str, shard: Shard, positions: Positions, this_pass: _Pass) -> Plan[None]:
        """Read a shard to its end, or until it is quiet, or until what comes was written after this pass began.

        A shard that is written to all the time would never be quiet, and keep the others waiting.
        """
        place, kept = self._iterators.pop(shard.id, (None, None))
        iterator = kept if place == positions.get(shard.id, Position()) else None
        if iterator is None:
            iterator = yield from self._iterator(stream, shard.id, positions, this_pass)
        quiet, most = 0, EMPTY_PAGES_OF_A_CLOSED_SHARD if shard.closed else self._empty_pages
        while iterator is not None and quiet < most:
            try:
                reply = yield from self._ask("GetRecords", {"ShardIterator": iterator})
            except Refused as refusal:
                if refusal.code not in (ITERATOR_EXPIRED, TRIMMED):
                    raise
                quiet += 1
                iterator = yield from self._iterator(stream, shard.id, positions, this_pass)
                continue
            records: Sequence[Record] = reply.get("Records", ())
            quiet = 0 if records else quiet + 1
            if records:
                processed = yield from self._count(records, this_pass)
                here = Position(last_sequence(records) or positions.get(shard.id, Position()).after)
                positions[shard.id] = here
                if self._after_page is not None:
                    yield from self._after_page(Page(shard.id, processed, last_written(records)))
                if positions[shard.id] != here:
                    return  # another process is further: the next pass continues from there
            following = reply.get("NextShardIterator")
            repeats, iterator = following == iterator, following
            if repeats or this_pass.is_over(records):
                break
        if iterator is None:
            positions[shard.id] = positions.get(shard.id, Position())._replace(finished=True)
        else:
            self._iterators[shard.id] = positions.get(shard.id, Position()), iterator

    def _iterator(self, stream: str, shard: str, positions: Positions, this_pass: _Pass) -> Plan[str | None]:
        """Where to read on: after the last record that was counted, or from the oldest that is left."""
        after = positions.get(shard, Position()).after
        if after is not None:
            try:
                return (yield from self._iterator_at(stream, shard, AFTER, SequenceNumber=after))
            except Refused as refusal:
                if refusal.code != TRIMMED:
                    raise
                this_pass.trimmed.append(shard)
                positions[shard] = Position()
        return (yield from self._iterator_at(stream, shard, OLDEST))

    def _iterator_at(self, stream: str, shard: str, kind: str, **where: str) -> Plan[str | None]:
        params = {"StreamArn": stream, "ShardId": shard, "ShardIteratorType": kind, **where}
        reply = yield from self._ask("GetShardIterator", params)
        iterator: str | None = reply.get("ShardIterator")
        return iterator

    def _count(self, records: Sequence[Record], this_pass: _Pass) -> Plan[Processed]:
        processed = yield from self._processor.process(records)
        if processed.unwritten:
            raise processed.unwritten[0].error
        this_pass.records += processed.records
        this_pass.snapshots += processed.snapshots
        this_pass.poisonous += processed.poisonous
        return processed

    def _ask(self, operation: str, params: Mapping[str, str]) -> Plan[Reply]:
        until = yield from self._client.new_deadline()
        return (yield from self._client.ask(operation, params, until, repeatable=True))


class _Pass:
    """What one pass has done so far."""

    def __init__(self, began_s: int) -> None:
        self.began_s = began_s
        self.records = 0
        self.snapshots = 0
        self.poisonous: list[Failure] = []
        self.trimmed: list[str] = []

    def is_over(self, records: Sequence[Record]) -> bool:
        """Whether these records are from after it began."""
        written_s = last_written(records) if records else None
        return written_s is not None and written_s > self.began_s + 1


def shard_of(description: Mapping[str, Any]) -> Shard:
    """A shard as DescribeStream tells of it."""
    numbers = description.get("SequenceNumberRange") or {}
    closed = numbers.get("EndingSequenceNumber") is not None
    return Shard(description["ShardId"], description.get("ParentShardId"), closed)


def parents_first(shards: Sequence[Shard]) -> list[Shard]:
    """The shards with each after the one it came from, otherwise in the order they have."""
    waiting = {shard.id: shard for shard in shards}
    ordered: list[Shard] = []
    for shard in shards:
        line: list[Shard] = []
        below: Shard | None = shard
        while below is not None and below.id in waiting:
            line.append(waiting.pop(below.id))
            below = None if below.parent is None else waiting.get(below.parent)
        ordered += reversed(line)
    return ordered


def last_sequence(records: Sequence[Record]) -> str | None:
    """The number of the last record that has one."""
    for record in reversed(records):
        sequence = (record.get("dynamodb") or {}).get("SequenceNumber")
        if sequence:
            return str(sequence)
    return None
