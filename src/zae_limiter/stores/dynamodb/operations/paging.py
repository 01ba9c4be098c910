"""Lists: partitions read ahead page by page, merged into one order, cut into the pages callers see.

What belongs to a whole namespace is spread over several keys of an index, so a list of it is the merge of as many
*strands*, each in order by itself. The indexes have keys only: the items are fetched afterwards, with consistent
reads, and what is gone by then (an index lags behind) is left out. Lists go on until the page is full or everything
was seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import check_entity_id
from zae_limiter.running.plan import Plan, Request
from zae_limiter.stores.cursors import name_after
from zae_limiter.stores.dynamodb.items import key_of, unless_broken
from zae_limiter.stores.dynamodb.requests import Backoff, Call, Item, Together
from zae_limiter.stores.dynamodb.schema import GSI4, SPREAD, Key, gsi4_pk
from zae_limiter.stores.dynamodb.table_client import BATCH_GET, Deadline, TableClient

Result = TypeVar("Result")
Row = TypeVar("Row")

READ_AHEAD = 500
"""The most keys that one query brings."""

AT_ONCE = 16
"""How many plans that write to buckets are run side by side: as many calls as a store makes at a time."""

SPARE = 8
"""How many more keys than its even part each of several strands is read ahead: parts are never quite even."""

FIRST, LAST = "\x01", "\U0010ffff"
"""Sort before and after every character of a name. A name followed by the first is just beyond that name."""


def position(cursor: str | None) -> str | None:
    """The name or id a cursor continues after; a key that DynamoDB can look for."""
    after = name_after(cursor)
    if after is not None:
        try:
            check_entity_id(after)
        except ValidationError:
            raise ValidationError("cursor", cursor, "must be the next_cursor of a page of this same list") from None
    return after


def names_after(prefix: str, after: str | None) -> tuple[str, str]:
    """Between which sort keys the names are that follow ``after`` (all of them, if it is ``None``)."""
    return f"{prefix}{after or ''}{FIRST}", f"{prefix}{LAST}"


class Strand:
    """One partition, of the table or of an index, in the order of its sort key, read ahead."""

    __slots__ = ("_client", "_next_key", "_pk", "_query", "ahead", "over", "sort_key")

    def __init__(
        self,
        client: TableClient,
        pk: str,
        *,
        index: str | None = None,
        prefix: str | None = None,
        between: tuple[str, str] | None = None,
        newest_first: bool = False,
        any_kind: bool = False,
    ) -> None:
        self.ahead: deque[Item] = deque()
        self.over = False
        self.sort_key = "SK" if index is None else f"{index}SK"
        self._client = client
        self._pk = pk
        self._query: dict[str, Any] = {
            "index": index,
            "prefix": prefix,
            "between": between,
            "newest_first": newest_first,
            "any_kind": any_kind,
        }
        self._next_key: Item | None = None

    @property
    def head(self) -> str:
        """The sort key of what comes next."""
        key: str = self.ahead[0][self.sort_key]["S"]
        return key

    def read_on(self, deadline: Deadline, limit: int) -> Plan[None]:
        """Read until something is ahead, or everything was read."""
        while not self.ahead and not self.over:
            query = self._client.query(self._pk, deadline, start=self._next_key, limit=limit, **self._query)
            found = yield from query
            self.ahead.extend(found.items)
            self._next_key = found.next_key
            self.over = found.next_key is None


class Merged:
    """Several strands as one list."""

    __slots__ = ("_client", "_first_of", "_strands")

    def __init__(self, client: TableClient, strands: Sequence[Strand], *, newest_first: bool = False) -> None:
        self._client = client
        self._strands = list(strands)
        self._first_of = max if newest_first else min

    def take(self, count: int) -> Plan[list[Item]]:
        """The next ``count`` items or keys; fewer only at the end."""
        limit = min(READ_AHEAD, count // len(self._strands) + SPARE if len(self._strands) > 1 else count)
        taken: list[Item] = []
        while len(taken) < count:
            dry = [strand for strand in self._strands if not strand.ahead and not strand.over]
            if dry:
                deadline = yield from self._client.new_deadline()
                yield from side_by_side([strand.read_on(deadline, limit) for strand in dry])
            live = [strand for strand in self._strands if strand.ahead]
            if not live:
                break
            taken.append(self._first_of(live, key=lambda strand: strand.head).ahead.popleft())
        return taken


def partition(
    client: TableClient, pk: str, between: tuple[str, str], *, index: str | None = None, newest_first: bool = False
) -> Merged:
    """One partition as a list."""
    return Merged(client, [Strand(client, pk, index=index, between=between, newest_first=newest_first)])


def whole_namespace(
    client: TableClient,
    ns: str,
    *,
    prefix: str | None = None,
    between: tuple[str, str] | None = None,
    newest_first: bool = False,
) -> Merged:
    """All items of a namespace of one kind (or of every kind, and of none) as a list of keys."""
    strands = [
        Strand(
            client,
            gsi4_pk(ns, slot),
            index=GSI4,
            prefix=prefix,
            between=between,
            newest_first=newest_first,
            any_kind=prefix is None and between is None,
        )
        for slot in range(SPREAD)
    ]
    return Merged(client, strands, newest_first=newest_first)


def rows_of(items: Merged, limit: int, row_of: Callable[[Item], Row | None]) -> Plan[list[Row]]:
    """One more row than ``limit``, if there are so many. ``row_of`` answers ``None`` for what does not belong.

    Broken items are left out.
    """
    rows: list[Row] = []
    while len(rows) <= limit:
        found = yield from items.take(limit + 1 - len(rows))
        if not found:
            break
        rows.extend(row for item in found if (row := unless_broken(row_of, item)) is not None)
    return rows


def fetched_rows_of(
    client: TableClient, keys: Merged, limit: int, row_of: Callable[[Item], Row | None]
) -> Plan[list[Row]]:
    """Likewise from the keys an index has: what is gone does not belong."""
    rows: list[Row] = []
    while len(rows) <= limit:
        found = [key_of(item) for item in (yield from keys.take(limit + 1 - len(rows)))]
        if not found:
            break
        items = yield from fetch(client, found)
        rows.extend(row for key in found if key in items and (row := unless_broken(row_of, items[key])) is not None)
    return rows


def fetch(client: TableClient, keys: Sequence[Key]) -> Plan[dict[Key, Item]]:
    """Those of the items that exist, by consistent reads."""
    deadline = yield from client.new_deadline()
    batches = [keys[start : start + BATCH_GET] for start in range(0, len(keys), BATCH_GET)]
    found = yield from side_by_side([client.get_all(batch, deadline) for batch in batches])
    return {key: item for batch in found for key, item in batch.items()}


def side_by_side(plans: Iterable[Plan[Result]]) -> Plan[list[Result]]:
    """The results of several plans whose calls are made at the same time.

    Only for plans that may be abandoned half way: when one fails, the others go no further.
    """
    running: dict[int, Plan[Result]] = dict(enumerate(plans))
    results: dict[int, Result] = {}
    asked: dict[int, Request[Any]] = {}

    def go_on(place: int, answer: Any = None) -> None:
        plan = running[place]
        try:
            asked[place] = plan.throw(answer) if isinstance(answer, Exception) else plan.send(answer)
        except StopIteration as finished:
            results[place] = finished.value
            del running[place]

    for place in list(running):
        go_on(place)
    while asked:
        calls = {place: request for place, request in asked.items() if isinstance(request, Call)}
        pauses = {place: request for place, request in asked.items() if isinstance(request, Backoff)}
        others = {place: request for place, request in asked.items() if place not in calls and place not in pauses}
        asked.clear()
        if pauses:  # one for all: the longest, while there is time for each
            tries = max(pause.tries for pause in pauses.values())
            give_up_at = min(pause.give_up_at for pause in pauses.values())
            waited = yield from _answer_to(Backoff(tries, give_up_at))
            for place in pauses:
                go_on(place, waited)
        for place, request in others.items():
            go_on(place, (yield from _answer_to(request)))
        if calls:
            answers = yield from Together(list(calls.values()))
            for place, answer in zip(calls, answers, strict=True):
                go_on(place, answer)
    return [results[place] for place in sorted(results)]


def _answer_to(request: Request[Any]) -> Plan[Any]:
    """The answer to a request, an error as a value."""
    try:
        return (yield from request)
    except Exception as error:
        return error


def some_at_once(plans: Sequence[Plan[Result]]) -> Plan[list[Result]]:
    """The results of any number of plans, of which :data:`AT_ONCE` are run side by side (see there)."""
    results: list[Result] = []
    for start in range(0, len(plans), AT_ONCE):
        results += yield from side_by_side(plans[start : start + AT_ONCE])
    return results
