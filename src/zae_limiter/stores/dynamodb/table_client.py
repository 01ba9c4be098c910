"""Calls to one table: repeated where that is safe, and followed to their end.

A transaction reads what is there, decides, and writes with the expectation that it still is so. If another client was
faster the whole of it begins anew, from reading on, for as long as a verb may take: :func:`persist`.

Here refusals and silences of DynamoDB become errors of this library, and nowhere else: :func:`verb`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import count
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable, VersionError
from zae_limiter.running.plan import CutShort, Plan
from zae_limiter.stores.dynamodb.expressions import Write
from zae_limiter.stores.dynamodb.items import BrokenItem, address, key_of
from zae_limiter.stores.dynamodb.requests import (
    CHECK_FAILED,
    KEY_THROTTLED,
    READ_MACHINE_TIME,
    TABLE_NOT_FOUND,
    TRANSACTION_CANCELED,
    TRANSACTION_IN_PROGRESS,
    Backoff,
    Call,
    Contended,
    DeadlineOver,
    Item,
    MachineTime,
    NoAnswer,
    Reason,
    Refused,
    Reply,
)
from zae_limiter.stores.dynamodb.schema import Key, is_filed_rightly, is_of
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.dynamodb.write_load import PARTITION_WCU

logger = logging.getLogger("zae_limiter")

TTL_MARGIN_S = 3_600
"""How long a bucket that is surely full again is kept before it may expire."""

BATCH_GET = 100
BATCH_WRITE = 25
WRITES_AT_ONCE = 100
"""The most writes that one transaction has."""


class Deadline(NamedTuple):
    """The time one verb (or one page of a long one) has: from when until when, and what the wall clock says.

    ``moment`` is when it began among all that this client does (see :meth:`TableClient.moment`). ``clock_error_ms``
    and ``checked`` are as in :class:`~zae_limiter.stores.dynamodb.requests.MachineTime`.
    """

    started: int
    give_up_at: int
    epoch_s: int
    moment: int
    clock_error_ms: int = 0
    checked: bool = True


class Found(NamedTuple):
    """One page of a query: keys and attributes the index has, and where to go on."""

    items: Sequence[Item]
    next_key: Item | None


class TableClient:
    """One table, asked by one client."""

    def __init__(
        self,
        table: str,
        *,
        deadline_ms: int,
        write_ids: WriteIds,
        ttl_margin_s: int = TTL_MARGIN_S,
        wcu: int = PARTITION_WCU,
    ) -> None:
        """``wcu``: how many writes a second one shard of a bucket is to take before it is split."""
        self.table = table
        self.deadline_ms = deadline_ms
        self.write_ids = write_ids
        self.ttl_margin_s = ttl_margin_s
        self.wcu = wcu
        self.misfiled = 0  # rows of indexes that were left out, because they are not what they are filed as
        self.moments = count(1)
        """Numbers that tell what came first of two things this client does, however fast they follow."""
        self.loaded_at = 0
        """The moment at which a call of this client was last refused because of load."""

    def moment(self) -> int:
        """The next of :attr:`moments`."""
        return next(self.moments)

    def new_deadline(self) -> Plan[Deadline]:
        """The time from now on that a verb, or a page of a long one, may take."""
        return self.deadline_from((yield READ_MACHINE_TIME))

    def deadline_from(self, time: MachineTime) -> Deadline:
        """The same, for a caller that has read the time."""
        started, epoch_s, error_ms, checked = time
        return Deadline(started, started + self.deadline_ms, epoch_s, next(self.moments), error_ms, checked)

    def ask(
        self, operation: str, params: Mapping[str, Any], deadline: Deadline, *, repeatable: bool, patient: bool = True
    ) -> Plan[Reply]:
        """The reply. Lost answers are asked for again if it is ``repeatable``, and a ``patient`` call waits
        throttles and conflicts out."""
        tries = 0
        failure: Refused | NoAnswer
        load: Refused | None = None
        while True:
            try:
                return (yield from Call(operation, params, deadline.give_up_at))
            except Refused as refusal:
                if refusal.by_load:
                    load = self.note_load(refusal)
                under_way = refusal.code == TRANSACTION_IN_PROGRESS  # our own, sent before
                if not (under_way or (patient and (refusal.by_throttling or refusal.by_conflict))):
                    raise
                failure = refusal
            except CutShort as cut:
                failure = NoAnswer(str(cut))
                if not repeatable:
                    raise failure from cut
            except NoAnswer as silence:
                if load is not None and isinstance(silence, DeadlineOver):
                    raise load from None  # that is why there is no time left
                if silence.final or (silence.sent and not repeatable):
                    raise
                failure = silence
            tries += 1
            yield from self.pause(tries, deadline, load or failure)

    def note_load(self, refusal: Refused) -> Refused:
        """A call was refused because of load."""
        self.loaded_at = self.moment()
        return refusal

    def pause(self, tries: int, deadline: Deadline, failure: Refused | NoAnswer) -> Plan[None]:
        """Wait before the next try; raise ``failure`` if there is no time left for one, or no use in it.

        A condition that failed was only a guess: that there is no time left for a better one is for others' sake.
        """
        if isinstance(failure, NoAnswer) and failure.final:
            raise failure
        try:
            yield from Backoff(tries, deadline.give_up_at)
        except NoAnswer:
            if isinstance(failure, Refused) and failure.by_condition:
                raise Contended from failure
            raise failure from None

    # Reading

    def get(self, key: Key, deadline: Deadline, *, consistent: bool = True) -> Plan[Item | None]:
        """One item."""
        params = {"TableName": self.table, "Key": address(key), "ConsistentRead": consistent}
        reply = yield from self.ask("GetItem", params, deadline, repeatable=True)
        return reply.get("Item")

    def get_few(self, keys: Sequence[Key], deadline: Deadline) -> Plan[dict[Key, Item]]:
        """Those of the items that exist, by no more than the simplest call."""
        if len(keys) != 1:
            return (yield from self.get_all(keys, deadline))
        item = yield from self.get(keys[0], deadline)
        return {} if item is None else {keys[0]: item}

    def get_all(
        self, keys: Iterable[Key], deadline: Deadline, *, consistent: bool = True, spare: list[Key] | None = None
    ) -> Plan[dict[Key, Item]]:
        """Those of the items that exist, however many calls that takes.

        ``spare`` are read too if that takes no call more; it loses those that were left unread.
        """
        spare = [] if spare is None else spare
        wanted = list(dict.fromkeys([*keys, *spare]))
        found: dict[Key, Item] = {}
        for start in range(0, len(wanted), BATCH_GET):
            pending: Sequence[Any] = [address(key) for key in wanted[start : start + BATCH_GET]]
            tries = 0
            while pending:
                request = {self.table: {"Keys": pending, "ConsistentRead": consistent}}
                reply = yield from self.ask("BatchGetItem", {"RequestItems": request}, deadline, repeatable=True)
                for items in reply.get("Responses", {}).values():
                    found.update((key_of(item), item) for item in items)
                left = reply.get("UnprocessedKeys") or {}
                pending = next(iter(left.values()))["Keys"] if left else ()
                if pending and spare:
                    unread = {key_of(key): key for key in pending}
                    pending = [unread[key] for key in unread if key not in spare]
                    spare[:] = [key for key in spare if key not in unread]
                if pending:
                    tries += 1
                    throttled = self.note_load(Refused(KEY_THROTTLED, "keys were left unread"))
                    yield from self.pause(tries, deadline, throttled)
        return found

    def query(
        self,
        pk: str,
        deadline: Deadline,
        *,
        index: str | None = None,
        prefix: str | None = None,
        between: tuple[str, str] | None = None,
        start: Item | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        consistent: bool | None = None,
        any_kind: bool = False,
    ) -> Plan[Found]:
        """One page of a partition, of the table or of an index, in the order of its sort key.

        Rows of an index that are not what they are filed as are left out; with ``any_kind``, only those of another
        namespace are. So whatever an index brings may be read by its key.
        """
        hash_key, sort_key = ("PK", "SK") if index is None else (f"{index}PK", f"{index}SK")
        params: dict[str, Any] = {
            "TableName": self.table,
            "KeyConditionExpression": "#pk = :pk",
            "ExpressionAttributeNames": {"#pk": hash_key},
            "ExpressionAttributeValues": {":pk": {"S": pk}},
            "ScanIndexForward": not newest_first,
        }
        if prefix is not None:
            params["KeyConditionExpression"] += " AND begins_with(#sk, :sk)"
            params["ExpressionAttributeNames"]["#sk"] = sort_key
            params["ExpressionAttributeValues"][":sk"] = {"S": prefix}
        elif between is not None:
            params["KeyConditionExpression"] += " AND #sk BETWEEN :from AND :to"
            params["ExpressionAttributeNames"]["#sk"] = sort_key
            params["ExpressionAttributeValues"] |= {":from": {"S": between[0]}, ":to": {"S": between[1]}}
        if index is not None:
            params["IndexName"] = index
        else:
            params["ConsistentRead"] = True if consistent is None else consistent
        if start is not None:
            params["ExclusiveStartKey"] = start
        if limit is not None:
            params["Limit"] = limit
        reply = yield from self.ask("Query", params, deadline, repeatable=True)
        items: Sequence[Item] = reply.get("Items", ())
        if index is not None:
            items = self._rightly_filed(index, pk, items, any_kind)
        return Found(items, reply.get("LastEvaluatedKey"))

    def _rightly_filed(self, index: str, pk: str, rows: Sequence[Item], any_kind: bool) -> Sequence[Item]:
        """Those of the rows that are of the namespace and kind they are filed under; the others are counted."""
        ns = pk.partition("/")[0]

        def is_right(row: Item) -> bool:
            if any_kind:
                return is_of(ns, key_of(row))
            return is_filed_rightly(index, Key(pk, row[f"{index}SK"]["S"]), key_of(row))

        right = [row for row in rows if is_right(row)]
        if len(right) < len(rows):
            self.misfiled += len(rows) - len(right)
            logger.warning(
                "left out %d misfiled rows of %s under %r, as %r: they are not what they are filed as (%d so far)",
                len(rows) - len(right),
                index,
                pk,
                next(row["PK"]["S"] for row in rows if not is_right(row)),
                self.misfiled,
            )
        return right

    def query_all(
        self,
        pk: str,
        deadline: Deadline | None = None,
        *,
        index: str | None = None,
        prefix: str | None = None,
        between: tuple[str, str] | None = None,
    ) -> Plan[list[Item]]:
        """A whole partition, all of it ``deadline`` then; else every page has a deadline of its own."""
        items: list[Item] = []
        start: Item | None = None
        while True:
            page_deadline = deadline or (yield from self.new_deadline())
            found = yield from self.query(pk, page_deadline, index=index, prefix=prefix, between=between, start=start)
            items += found.items
            start = found.next_key
            if start is None:
                return items

    # Writing

    def transact(
        self, writes: Sequence[Mapping[str, Any]], deadline: Deadline, doubts: list[NoAnswer] | None = None
    ) -> Plan[tuple[Reason, ...]]:
        """Several writes or none. Nothing (an empty tuple) when they were done, else a reason per item.

        A token tells DynamoDB that a repeated transaction is the same. One that met a conflict was surely not
        done, and is tried as a new one, unless an answer was lost before. ``doubts`` gets every lost answer.
        """
        tries = 0
        token = self.write_ids.token()
        in_doubt = False
        while True:
            params = {"TransactItems": writes, "ClientRequestToken": token}
            try:
                yield from self.ask("TransactWriteItems", params, deadline, repeatable=False, patient=False)
            except NoAnswer as silence:
                in_doubt = in_doubt or silence.sent
                if doubts is not None and silence.sent:
                    doubts.append(silence)
                tries += 1
                yield from self.pause(tries, deadline, silence)
                continue
            except Refused as refusal:
                if refusal.by_conflict or refusal.by_throttling:
                    tries += 1
                    yield from self.pause(tries, deadline, refusal)
                    token = token if in_doubt else self.write_ids.token()
                    continue
                if refusal.code != TRANSACTION_CANCELED or not refusal.reasons:
                    raise
                return refusal.reasons
            return ()

    def delete_all(self, keys: Sequence[Key], deadline: Deadline) -> Plan[None]:
        """Delete items, whatever they are, however many calls that takes. Only for keys that are never used again: a
        deletion may arrive late, and deletes whatever is there then."""
        for start in range(0, len(keys), BATCH_WRITE):
            pending: Sequence[Any] = [
                {"DeleteRequest": {"Key": address(key)}} for key in keys[start : start + BATCH_WRITE]
            ]
            tries = 0
            while pending:
                params = {"RequestItems": {self.table: pending}}
                reply = yield from self.ask("BatchWriteItem", params, deadline, repeatable=True)
                left = reply.get("UnprocessedItems") or {}
                pending = next(iter(left.values())) if left else ()
                if pending:
                    tries += 1
                    yield from self.pause(tries, deadline, Refused("ThrottlingException", "items were left undone"))


Arguments = ParamSpec("Arguments")
Owner = TypeVar("Owner")
Result = TypeVar("Result")

# What refusals and silences mean to a caller

_HINTS = {
    TABLE_NOT_FOUND: "deploy it, or open it once with create=True; check the name, the region and the endpoint",
    "AccessDeniedException": "the credentials in use lack a permission on this table",
    "UnrecognizedClientException": "the credentials in use are not valid here",
    "ExpiredTokenException": "the credentials in use have expired: renew them",
    "InvalidSignatureException": "check the secret key and this machine's clock",
    "ValidationException": "the table may have another layout, or this is a bug; please report it",
}

_SETTINGS_HINT = "check the region and the endpoint in the URL, and that this machine has credentials for them"


def error_of(failure: Refused | NoAnswer) -> RateLimiterUnavailable | ConfigurationError:
    """The error callers see when DynamoDB refused for another reason than theirs, or did not answer."""
    if isinstance(failure, Refused) and failure.by_configuration:
        error = ConfigurationError(f"DynamoDB refused: {failure}", hint=_HINTS.get(failure.code, _SETTINGS_HINT))
    elif isinstance(failure, NoAnswer) and failure.misconfigured:
        error = ConfigurationError(f"DynamoDB cannot be asked: {failure}", hint=_SETTINGS_HINT)
    else:
        return unavailable(failure)
    error.__cause__ = failure.__cause__ or failure
    return error


def unavailable(failure: Refused | NoAnswer) -> RateLimiterUnavailable:
    """The same, where what was asked is to be tried again whatever the reason."""
    if isinstance(failure, NoAnswer):
        message = f"DynamoDB did not answer: {failure}"
        error = RateLimiterUnavailable(message, ambiguous=failure.sent)
    else:
        hint = "it is under too much load" if failure.by_throttling else _HINTS.get(failure.code)
        error = RateLimiterUnavailable(f"DynamoDB refused: {failure}", hint=hint)
    error.__cause__ = failure.__cause__ or failure
    return error


def verb(
    method: Callable[Concatenate[Owner, Arguments], Plan[Result]],
) -> Callable[Concatenate[Owner, Arguments], Plan[Result]]:
    """A plan method whose callers see this library's errors, never DynamoDB's."""

    @wraps(method)
    def plan(self: Any, /, *args: Any, **kwargs: Any) -> Plan[Result]:
        try:
            return (yield from method(self, *args, **kwargs))
        except (Refused, NoAnswer) as failure:
            raise error_of(failure) from (failure.__cause__ or failure)
        except BrokenItem as broken:
            raise VersionError(str(broken)) from broken

    return plan


def table_client_of(store: Any) -> TableClient | None:
    """What plans on the table of a store ask with; ``None`` if the store is no DynamoDB table."""
    client: TableClient | None = getattr(store, "client", None)
    return client


class Overtaken(Refused):
    """Another client changed one of the items meanwhile. Nothing was done."""

    def __init__(self, reasons: Sequence[Reason] = ()) -> None:
        super().__init__(TRANSACTION_CANCELED, "others keep changing the same thing", reasons=reasons)


def commit(client: TableClient, writes: Sequence[Write], deadline: Deadline) -> Plan[None]:
    """Do all of the writes. Raises :class:`Overtaken` if an expectation was wrong: then none was done."""
    reasons = yield from client.transact(writes, deadline)
    if any(reason.code == CHECK_FAILED for reason in reasons):
        raise Overtaken(reasons)
    if reasons:
        codes = ", ".join(sorted({reason.code for reason in reasons if reason.code}))
        raise Refused(TRANSACTION_CANCELED, codes, reasons=reasons)


def persist(client: TableClient, attempt: Callable[[Deadline], Plan[Result]]) -> Plan[Result]:
    """What ``attempt`` returns, begun anew whenever it was overtaken, for as long as a verb may take."""
    deadline = yield from client.new_deadline()
    tries = 0
    while True:
        try:
            return (yield from attempt(deadline))
        except Overtaken as overtaken:
            failure = overtaken
        tries += 1
        yield from client.pause(tries, deadline, failure)
