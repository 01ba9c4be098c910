"""Plans of the DynamoDB store over a model of it, with the answer to every call in the hands of the test.

A :class:`Table` is one table of the model, with clients on it. A :class:`Script` runs one plan of a client and answers
it as a driver would, except where the test says otherwise: the *fate* of the n-th call is not to arrive, not to be
answered, to arrive late, to be refused, to be interrupted; or something happens just before it. So a test can run a
scenario once, count its calls, and then run it again for every call and every fate.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from enum import StrEnum
from itertools import count
from typing import Any, NamedTuple

from simulation.model import Model
from zae_limiter.bucket import refill_bucket
from zae_limiter.lease.base import LeaseBase
from zae_limiter.limiter.sync_limiter import SyncRateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter.repository.core import Core
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.running.plan import (
    UNKNOWN,
    AwaitBell,
    CutShort,
    Interrupted,
    Pause,
    Plan,
    ReadClock,
    ReadTimer,
    Request,
)
from zae_limiter.stores.dynamodb.items import Image, image_of
from zae_limiter.stores.dynamodb.keys import bucket_key
from zae_limiter.stores.dynamodb.marks import Marks
from zae_limiter.stores.dynamodb.requests import (
    KEY_THROTTLED,
    TRANSACTION_CANCELED,
    TRANSACTION_CONFLICT,
    AwaitNews,
    Backoff,
    Call,
    DeadlineOver,
    MachineTime,
    NoAnswer,
    ReadMachineTime,
    Reason,
    Refused,
    Together,
)
from zae_limiter.stores.dynamodb.store import LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS, DynamoSpace, DynamoStore

START_MS = 1_800_000_000_000
TRIP_MS = 3
DEADLINE_S = 2.0
MOST_STEPS = 20_000

LIMITS = (Limit.per_day("rpd", 100), Limit.per_day("tpd", 1_000))
WANTED = {"rpd": 3, "tpd": 50}
RESOURCE = "gpt"


class Fate(StrEnum):
    """What becomes of one call, instead of its being done and answered."""

    LOST = "it never arrives, and nobody answers"
    UNHEARD = "it is done, and nobody answers"
    LATE = "nobody answers, and it is done after the next call"
    LATEST = "nobody answers, and it is done when the plan is over"
    UNSENT = "there is no connection"
    THROTTLED = "the key is throttled"
    CONFLICT = "a transaction is at the item"
    FORBIDDEN = "a permission lacks"
    CANCELLED = "it is done, and the task is cancelled meanwhile"
    INTERRUPTED_DONE = "it is done, and the thread is interrupted meanwhile"
    INTERRUPTED_UNDONE = "it never arrives, and the thread is interrupted meanwhile"


SILENCES = (Fate.LOST, Fate.UNHEARD, Fate.LATE, Fate.LATEST, Fate.UNSENT)
REFUSALS = (Fate.THROTTLED, Fate.CONFLICT, Fate.FORBIDDEN)
INTERRUPTS = (Fate.CANCELLED, Fate.INTERRUPTED_DONE, Fate.INTERRUPTED_UNDONE)
EVERY_FATE = (*SILENCES, *REFUSALS, *INTERRUPTS)


class Stopped(BaseException):
    """The cancellation or interrupt of a script."""


class Ended(NamedTuple):
    """How a plan ended: with a result, or with an error (the interrupt itself, if there was one).

    ``finished``: the plan itself returned. ``ambiguous``: the error it raised says so.
    """

    result: Any
    error: BaseException | None
    calls: list[Call]
    finished: bool = True
    ambiguous: bool = False

    @property
    def operations(self) -> list[str]:
        return [call.operation for call in self.calls]


class Held(NamedTuple):
    """One limit of a bucket: what it holds, what was ever taken, and its ceiling, in millitokens."""

    level: int
    taken: int
    burst: int


def held_in(item: Any, now: int) -> dict[tuple[str, str], Held]:
    """What a bucket holds; nothing if a test has spoiled it."""
    try:
        image = image_of(item)
    except (ValueError, ArithmeticError):
        return {}
    return {
        (image.entity_id, name): Held(refill_bucket(balance, now), balance.tc, balance.bx)
        for name, balance in image.balances.items()
    }


class Table:
    """One table, all its clients, and one time for everybody."""

    NAME = "limits"

    def __init__(self) -> None:
        self.model = Model()
        self.now = START_MS
        self.timer = 0
        self._numbers = count(1)
        self._read: dict[str, tuple[Any, int, dict[tuple[str, str], Held]]] = {}
        self.operator = self.client()
        self.operator.run(self.operator.store.create(self.now))
        self.ns: str = self.operator.run(self.operator.space.checked_ns())

    def copy(self) -> Table:
        """Another table that is like this one now, without its clients but for an operator. Cheaper than making it."""
        twin: Table = object.__new__(Table)
        twin.model = Model()
        twin.model.tables = {name: copy_of(table) for name, table in self.model.tables.items()}
        twin.now, twin.timer, twin.ns = self.now, self.timer, self.ns
        twin._numbers, twin._read = count(1_000), {}
        twin.operator = twin.client()
        return twin

    def client(self, *, corrected: bool = False, config_cache_ttl: float = 60.0) -> Client:
        """Another process on the table. It knows nothing yet."""
        return Client(self, f"{next(self._numbers):08x}", corrected, config_cache_ttl)

    def call(self, operation: str, params: Mapping[str, Any]) -> Any:
        return self.model.call(operation, params, now_s=self.timer / 1000)

    # Looking inside

    def place(self, entity_id: str, resource: str = RESOURCE, ns: str | None = None) -> tuple[str, str]:
        return tuple(bucket_key(ns or self.ns, entity_id, resource))  # type: ignore[return-value]

    def item(self, entity_id: str, resource: str = RESOURCE) -> Any:
        return self.model.item(self.NAME, *self.place(entity_id, resource))

    def image(self, entity_id: str, resource: str = RESOURCE) -> Image | None:
        item = self.item(entity_id, resource)
        return None if item is None else image_of(item)

    def levels(self, entity_id: str, resource: str = RESOURCE) -> dict[str, int]:
        """Millitokens by limit, at the time of the table; nothing for a bucket that is not there."""
        image = self.image(entity_id, resource)
        held = {} if image is None else image.balances
        return {name: refill_bucket(balance, self.now) for name, balance in held.items()}

    def counters(self, entity_id: str, resource: str = RESOURCE) -> dict[str, int]:
        """What was ever taken, net, in millitokens by limit."""
        image = self.image(entity_id, resource)
        held = {} if image is None else image.balances
        return {name: balance.tc for name, balance in held.items()}

    def buckets(self) -> list[Any]:
        """The items of all buckets."""
        return [item for (_, sk), item in self.model.snapshot(self.NAME).items() if sk == "#STATE"]

    def snapshot(self) -> dict[tuple[str, str], Held]:
        """What every bucket holds, by entity and limit."""
        found: dict[tuple[str, str], Held] = {}
        for (pk, sk), item in self.model.tables[self.NAME].items.items():
            if sk == "#STATE":
                known = self._read.get(pk)
                if known is None or known[0] is not item or known[1] != self.now:
                    known = self._read[pk] = (item, self.now, held_in(item, self.now))
                found |= known[2]
        return found

    # What else may happen

    def remove_bucket(self, entity_id: str, resource: str = RESOURCE) -> None:
        pk, sk = self.place(entity_id, resource)
        self.call("DeleteItem", {"TableName": self.NAME, "Key": {"PK": {"S": pk}, "SK": {"S": sk}}})

    def spoil(self, entity_id: str, attribute: str, value: Any = None) -> None:
        """Change one attribute of a bucket by hand, or remove it."""
        item = dict(self.item(entity_id))
        item.pop(attribute, None)
        if value is not None:
            item[attribute] = value
        self.call("PutItem", {"TableName": self.NAME, "Item": item})


def copy_of(table: Any) -> Any:
    """A table of the model; items are never changed in place, so they are shared."""
    twin = copy(table)
    twin.items, twin._sizes, twin.changes = dict(table.items), dict(table._sizes), []
    twin.order = order_of(table.order)
    twin.indexes = {name: order_of(index) for name, index in table.indexes.items()}
    return twin


def order_of(order: Any) -> Any:
    twin = copy(order)
    twin.partitions = {name: list(places) for name, places in order.partitions.items()}
    return twin


class Client:
    """One process: a store of its own, with its memory, its cache and its marks."""

    def __init__(self, table: Table, name: str, corrected: bool, config_cache_ttl: float) -> None:
        self.table = table
        self.store = DynamoStore(table.NAME, deadline=DEADLINE_S, config_cache_ttl=config_cache_ttl, marks=Marks(name))
        self.core = Core(self.store, clock=lambda: table.now)
        if corrected:
            self.core.space = self.store.space("default", corrected=True)
        self.space: DynamoSpace = self.core.space  # type: ignore[assignment]
        repository: SyncRepository = object.__new__(SyncRepository)
        repository._core = self.core
        repository._driver = self  # type: ignore[assignment]
        self.limiter = SyncRateLimiter(repository)

    @property
    def unresolved(self) -> int:
        return self.core.unresolved + self.space.unresolved

    def run(self, plan: Plan[Any], *, to_the_end: bool = False) -> Any:
        """The result of a plan to which nothing happens."""
        ended = Script(self.table).run(plan, to_the_end=to_the_end)
        if ended.error is not None:
            raise ended.error
        return ended.result

    def lease(self, entity_id: str = "key", wanted: Mapping[str, int] = WANTED, **options: Any) -> LeaseBase:
        return self.limiter.acquire(entity_id, RESOURCE, wanted, **options)

    def take(self, entity_id: str = "key", wanted: Mapping[str, int] = WANTED, **options: Any) -> LeaseBase:
        """A lease that has begun."""
        lease = self.lease(entity_id, wanted, **options)
        self.run(lease._begin())
        return lease

    def takes(self, entity_id: str = "key", wanted: Mapping[str, int] = WANTED, **options: Any) -> bool:
        """Whether it is granted."""
        from zae_limiter import RateLimitExceeded

        try:
            self.take(entity_id, wanted, **options)
        except RateLimitExceeded:
            return False
        return True


class Script:
    """Runs plans; ``fates`` and ``meanwhile`` are by the number of the call, from 0.

    ``silent_from``: from that call on nobody answers within any deadline, and ``heard`` says whether calls arrive.
    """

    def __init__(
        self,
        table: Table,
        fates: Mapping[int, Fate] | None = None,
        *,
        meanwhile: Mapping[int, Callable[[], object]] | None = None,
        silent_from: int | None = None,
        heard: bool = False,
    ) -> None:
        self.table = table
        self.fates = fates or {}
        self.meanwhile = meanwhile or {}
        self.silent_from = silent_from
        self.heard = heard
        self.calls: list[Call] = []
        self.effects: Counter[tuple[str, str]] = Counter()
        """What the calls of this plan took, net, by entity and limit, in millitokens."""
        self.minted: list[str] = []
        """Writes of this plan that left more in a bucket than was there, less what they took."""
        self._late: list[tuple[int, Call]] = []
        self._interrupt: BaseException | None = None
        self._to_the_end = False

    def run(self, plan: Plan[Any], *, to_the_end: bool = False) -> Ended:
        """Run a plan to its end. ``to_the_end`` as with a driver: it is not interrupted."""
        self._to_the_end = to_the_end
        result: Any = None
        error: BaseException | None = None
        step, argument = plan.send, None
        for _ in range(MOST_STEPS):
            try:
                request = step(argument)  # type: ignore[arg-type]
            except StopIteration as finished:
                result = finished.value
                break
            except BaseException as raised:
                error = raised.cause if isinstance(raised, Interrupted) else raised
                break
            try:
                step, argument = plan.send, self._answer(request)  # type: ignore[assignment]
            except (Exception, Interrupted) as raised:
                step, argument = plan.throw, raised  # type: ignore[assignment]
        else:
            raise AssertionError("a plan that does not end")
        self._let_arrive(None)
        finished, ambiguous = error is None, bool(getattr(error, "ambiguous", False))
        if self._interrupt is not None:
            result, error = None, self._interrupt
        return Ended(result, error, self.calls, finished, ambiguous)

    def _answer(self, request: Request[Any]) -> Any:
        table = self.table
        if isinstance(request, Together):
            return self._answer_all(request.calls, several=True)
        if isinstance(request, Call):
            return self._answer_all([request], several=False)
        if isinstance(request, ReadMachineTime):
            return MachineTime(table.timer, table.now // 1000)
        if isinstance(request, ReadClock):
            return table.now
        if isinstance(request, ReadTimer):
            return table.timer
        if isinstance(request, (Pause, AwaitBell)):
            table.timer += request.milliseconds
            return None
        if isinstance(request, AwaitNews):
            table.timer = max(table.timer, request.give_up_at)
            return None
        assert isinstance(request, Backoff)
        pause = min(SHORTEST_PAUSE_MS * 2**request.tries, LONGEST_PAUSE_MS)
        if table.timer + pause >= request.give_up_at:
            raise DeadlineOver
        table.timer += pause
        return None

    def _answer_all(self, calls: Sequence[Call], *, several: bool) -> Any:
        answers = []
        fates = []
        for call in calls:
            number = len(self.calls)
            self.calls.append(call)
            if number in self.meanwhile:
                self.meanwhile[number]()
            fate = self.fates.get(number)
            if fate in INTERRUPTS and self._interrupt is not None:
                fate = None  # drivers let nothing interrupt a plan for the second time
            fates.append(fate)
            answers.append(self._fulfil(call, number, fates[-1]))
        stop = next((fate for fate in fates if fate in INTERRUPTS), None)
        if stop is not None:
            self._interrupt = self._interrupt or Stopped(stop)
            reply = UNKNOWN if stop is not Fate.CANCELLED else answers if several else answers[0]
            if not self._to_the_end:
                failure = reply if isinstance(reply, (Refused, NoAnswer)) else None
                raise Interrupted(self._interrupt, reply=None if failure else reply, error=failure)
            if reply is UNKNOWN:
                raise CutShort("interrupted")
        if not several and isinstance(answers[0], (Refused, NoAnswer)):
            raise answers[0]
        return answers if several else answers[0]

    def _fulfil(self, call: Call, number: int, fate: Fate | None) -> Any:
        self._let_arrive(number)
        table = self.table
        if table.timer >= call.give_up_at:
            return DeadlineOver()
        if self.silent_from is not None and number >= self.silent_from:
            table.timer = call.give_up_at
            if self.heard:
                self._apply(call)
            return NoAnswer("silence")
        table.timer += TRIP_MS
        if fate in (Fate.LOST, Fate.INTERRUPTED_UNDONE):
            return NoAnswer("lost")
        if fate is Fate.UNSENT:
            return NoAnswer("no connection", sent=False)
        if fate is Fate.THROTTLED:
            return Refused(KEY_THROTTLED)
        if fate is Fate.FORBIDDEN:
            return Refused("AccessDeniedException")
        if fate is Fate.CONFLICT:
            return self._conflict(call)
        if fate in (Fate.LATE, Fate.LATEST):
            self._late.append((number + 1 if fate is Fate.LATE else MOST_STEPS, call))
            return NoAnswer("late")
        reply = self._apply(call)
        return NoAnswer("unheard") if fate is Fate.UNHEARD else reply

    def _conflict(self, call: Call) -> Refused:
        if call.operation != "TransactWriteItems":
            return Refused(TRANSACTION_CONFLICT)
        others = [Reason(None)] * (len(call.params["TransactItems"]) - 1)
        return Refused(TRANSACTION_CANCELED, reasons=[Reason("TransactionConflict"), *others])

    def _let_arrive(self, number: int | None) -> None:
        """Do the late calls whose time has come; all of them at the end."""
        due = [call for after, call in self._late if number is None or number > after]
        self._late = [(after, call) for after, call in self._late if not (number is None or number > after)]
        for call in due:
            self._apply(call)

    def _apply(self, call: Call) -> Any:
        if call.operation not in ("PutItem", "UpdateItem", "TransactWriteItems"):
            return self._done(call)
        before = self.table.snapshot()
        reply = self._done(call)
        after = self.table.snapshot()
        for place, held in after.items():
            was = before.get(place)
            taken = held.taken - (was.taken if was else 0)
            self.effects[place] += taken
            if was is not None and held.level > was.level - taken:
                self.minted.append(f"{place}: {was} became {held}")
            if held.level > held.burst:
                self.minted.append(f"{place}: {held} is above its ceiling")
        return reply

    def _done(self, call: Call) -> Any:
        try:
            return self.table.call(call.operation, call.params)
        except Refused as refusal:
            return refusal


class ModelTransport:
    """Carries the calls of a real store to the model. ``before`` may raise instead, ``after`` lose the reply."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.calls: list[str] = []
        self.before: Callable[[str], object] = lambda operation: None
        self.after: Callable[[str], object] = lambda operation: None
        self.seconds = 0.0
        """How long an answer takes."""
        self._lock = threading.Lock()

    def _answer(self, operation: str, params: Mapping[str, Any]) -> Any:
        self.calls.append(operation)
        self.before(operation)
        with self._lock:
            reply = self.table.call(operation, params)
        self.after(operation)
        return reply

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        try:
            return self._answer(operation, params)
        finally:
            time.sleep(self.seconds)

    def close(self) -> None:
        """Nothing to close."""


class AsyncModelTransport(ModelTransport):
    """The same for event loops."""

    async def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:  # type: ignore[override]
        try:
            return self._answer(operation, params)
        finally:
            await asyncio.sleep(self.seconds)

    async def close(self) -> None:  # type: ignore[override]
        """Nothing to close."""


class ModelStore(DynamoStore):
    """A real store, answered by the model, in both worlds: ``threads`` and ``loops`` are its transports."""

    def __init__(self, table: Table, *, deadline: float = DEADLINE_S, config_cache_ttl: float = 60.0) -> None:
        self.threads = ModelTransport(table)
        self.loops = AsyncModelTransport(table)
        super().__init__(
            table.NAME,
            deadline=deadline,
            config_cache_ttl=config_cache_ttl,
            transport=self.threads,
            async_transport=self.loops,  # type: ignore[arg-type]
        )


def answer(table: Table, request: Call | Together) -> Any:
    """What the model says, refusals as values."""
    script = Script(table)
    return script._answer_all(request.calls if isinstance(request, Together) else [request], several=True)


def go_on(plan: Generator[Call | Together, Any, Ended], reply: Any = None) -> Call | Together | Ended:
    """Let a plan that is run by :func:`steps` hear an answer: its next call, or how it ended."""
    try:
        if isinstance(reply, (Refused, NoAnswer)):
            return plan.throw(reply)
        return plan.send(reply)
    except StopIteration as finished:
        ended: Ended = finished.value
        return ended


def finish(plan: Generator[Call | Together, Any, Ended], table: Table, reply: Any = None) -> Ended:
    """Let it hear an answer, and then run it to its end."""
    request = go_on(plan, reply)
    while not isinstance(request, Ended):
        answers = answer(table, request)
        request = go_on(plan, answers if isinstance(request, Together) else answers[0])
    return request


def steps(plan: Plan[Any], table: Table) -> Generator[Call | Together, Any, Ended]:
    """Run a plan up to each of its calls, to be answered from outside (send the answer, or throw).

    For tests that interleave several plans by hand.
    """
    script = Script(table)
    step, argument = plan.send, None
    while True:
        try:
            request = step(argument)  # type: ignore[arg-type]
        except StopIteration as finished:
            return Ended(finished.value, None, [])
        except BaseException as raised:
            return Ended(None, raised, [])
        try:
            reply = (yield request) if isinstance(request, (Call, Together)) else script._answer(request)
            step, argument = plan.send, reply
        except (Exception, Interrupted) as raised:
            step, argument = plan.throw, raised  # type: ignore[assignment]
