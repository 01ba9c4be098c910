"""What the tests of usage share: a limiter on a model of DynamoDB, its stream as records, and a driver for plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

from simulation.model import Change, Model
from zae_limiter.limiter.sync_limiter import SyncRateLimiter
from zae_limiter.models.reports import UsageSnapshot
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.running.plan import Plan, Request
from zae_limiter.stores.dynamodb.operations.namespaces import table_params
from zae_limiter.stores.dynamodb.requests import (
    Backoff,
    Call,
    DeadlineOver,
    MachineTime,
    NoAnswer,
    ReadMachineTime,
    Refused,
    Together,
)
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.usage_items import Span, span_of
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.protocol import Store
from zae_limiter.testing.clock import FakeClock
from zae_limiter_aggregator.processor import Processor

Result = TypeVar("Result")
Ask = Callable[[str, Mapping[str, Any]], Any]

TABLE = "limits"
DEADLINE_MS = 2_000
EPOCH_S = 1_800_000_000
MOST_TRIES = 3


class ModelTransport:
    """Carries calls to a model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lock = Lock()

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        with self._lock:
            return self._model.call(operation, params)

    def close(self) -> None:
        pass


def store_on(model: Model) -> DynamoStore:
    return DynamoStore(TABLE, transport=ModelTransport(model), deadline=60.0)


def limiter_on(store: Store, clock: FakeClock, *, create: bool = False) -> SyncRateLimiter:
    repository = SyncRepository(store, clock=clock)
    if create:
        repository._driver.run(store.create(0))
    return SyncRateLimiter(repository)


def empty_model() -> Model:
    """A model with nothing but the table."""
    model = Model()
    model.call("CreateTable", table_params(TABLE))
    return model


def asking() -> TableClient:
    return TableClient(TABLE, deadline_ms=DEADLINE_MS, write_ids=WriteIds("00000001"))


def answer(request: Request[Any], ask: Ask) -> Any:
    """The answer to a request of a plan; errors as values."""
    if isinstance(request, Together):
        return [answer(call, ask) for call in request.calls]
    if isinstance(request, Call):
        try:
            return ask(request.operation, request.params)
        except (Refused, NoAnswer) as failure:
            return failure
    if isinstance(request, Backoff):
        return DeadlineOver() if request.tries >= MOST_TRIES else None
    assert isinstance(request, ReadMachineTime), request
    return MachineTime(0, EPOCH_S)


def run(plan: Plan[Result], ask: Ask) -> Result:
    """The result of a plan whose calls go to ``ask``."""
    reply: Any = None
    while True:
        try:
            request = plan.throw(reply) if isinstance(reply, Exception) else plan.send(reply)
        except StopIteration as finished:
            result: Result = finished.value
            return result
        reply = answer(request, ask)


def process(model: Model, records: Sequence[Mapping[str, Any]]) -> Any:
    """Count a batch into a model's snapshots."""
    return run(Processor(asking()).process(records), model.call)


def records_of(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """What the stream of a model says, as GetRecords returns it."""
    records = []
    for change in changes:
        pk, sk = change.key
        told = {"Keys": {"PK": {"S": pk}, "SK": {"S": sk}}, "SequenceNumber": change.sequence}
        if change.old is not None:
            told["OldImage"] = dict(change.old)
        if change.new is not None:
            told["NewImage"] = dict(change.new)
        records.append({"eventName": change.name, "eventVersion": "1.1", "dynamodb": told})
    return records


def snapshot_items(model: Model) -> dict[Any, Any]:
    """All snapshots there are, by key."""
    return {key: item for key, item in model.snapshot(TABLE).items() if key[1].startswith("#USAGE#")}


def spans(model: Model) -> list[Span]:
    return [span_of(item) for item in snapshot_items(model).values()]


def read_all(limiter: SyncRateLimiter, page_size: int = 1_000, **query: Any) -> tuple[list[UsageSnapshot], list[Any]]:
    """Every window a query lists, and the cursors on the way."""
    found: list[UsageSnapshot] = []
    cursors: list[Any] = []
    cursor = None
    while True:
        page = limiter.get_usage_snapshots(**query, limit=page_size, cursor=cursor)
        assert len(page.items) == page_size or page.next_cursor is None
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found, cursors
        cursors.append(cursor)
