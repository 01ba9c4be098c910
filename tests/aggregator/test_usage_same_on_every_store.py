"""Usage on DynamoDB and in memory: the same calls give the same windows, in the same order, with the same cursors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usage_model import empty_model, limiter_on, process, read_all, records_of, store_on

from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.limiter.sync_limiter import SyncRateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import UsageSnapshot
from zae_limiter.stores.cursors import encode_cursor
from zae_limiter.stores.dynamodb.operations import usage
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing.clock import NEW_YEAR_2026_MS, FakeClock

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)
HOUR, DAY = 3_600, 86_400
ENTITIES = ("a", "a-b", "b", "B")
RESOURCES = ("gpt", "gpt-4", "gpt/4", "claude")


class Take(NamedTuple):
    """Take some, correct it, and perhaps fail."""

    entity_id: str
    resource: str
    amount: int
    more: int = 0
    fails: bool = False

    def do(self, limiter: SyncRateLimiter, clock: FakeClock) -> None:
        try:
            with limiter.acquire(self.entity_id, self.resource, {"rpm": self.amount}) as lease:
                lease.adjust(rpm=self.more)
                if self.fails:
                    raise ZeroDivisionError
        except (ZeroDivisionError, RateLimitExceeded):
            pass


class Wait(NamedTuple):
    """Let time pass, or let a clock that was fast be set back."""

    seconds: int

    def do(self, limiter: SyncRateLimiter, clock: FakeClock) -> None:
        clock.step_to(clock() + self.seconds * 1_000)


class Configure(NamedTuple):
    """Change the limits of every entity."""

    limits: tuple[Limit, ...]

    def do(self, limiter: SyncRateLimiter, clock: FakeClock) -> None:
        limiter.set_system_defaults(list(self.limits))


class Forget(NamedTuple):
    """Delete an entity with its buckets."""

    entity_id: str

    def do(self, limiter: SyncRateLimiter, clock: FakeClock) -> None:
        limiter.create_entity(self.entity_id)
        limiter.delete_entity(self.entity_id)


Action = Take | Wait | Configure | Forget

takes = st.builds(
    Take,
    st.sampled_from(ENTITIES),
    st.sampled_from(RESOURCES),
    st.integers(0, 10),
    st.integers(0, 3),
    st.sampled_from([False, False, True]),
)
waits = st.builds(Wait, st.sampled_from([1, 60, HOUR - 1, HOUR, 5 * HOUR, DAY, 20 * DAY]))
changes = st.builds(Configure, st.sampled_from([(RPM,), (RPM, TPM)]))
stories = st.one_of(
    st.lists(st.one_of(takes, waits, changes, st.builds(Forget, st.sampled_from(ENTITIES))), min_size=1, max_size=60),
    st.lists(st.one_of(takes, waits, changes, st.just(Wait(-2))), min_size=1, max_size=60),
)
"""Which hour a clock that was set back belongs to is known within a bucket's life only, so not with ``Forget``."""

moments = st.none() | st.integers(0, 70 * 24).map(lambda hours: NEW_YEAR_2026_MS + hours * HOUR * 500)
queries = st.fixed_dictionaries(
    {
        "window_type": st.sampled_from([None, "hourly", "daily", "monthly"]),
        "start_time": moments,
        "end_time": moments,
        "page_size": st.sampled_from([1, 2, 3, 7, 1_000]),
    }
)
subjects = st.one_of(
    st.builds(lambda entity_id: {"entity_id": entity_id}, st.sampled_from(ENTITIES)),
    st.builds(lambda resource: {"resource": resource}, st.sampled_from(RESOURCES)),
    st.builds(
        lambda entity_id, resource: {"entity_id": entity_id, "resource": resource},
        st.sampled_from(ENTITIES),
        st.sampled_from(RESOURCES),
    ),
)


class Twins:
    """Two limiters that were told the same."""

    def __init__(self) -> None:
        self.model = empty_model()
        self.clocks = [FakeClock(), FakeClock()]
        self.remote = limiter_on(store_on(self.model), self.clocks[0], create=True)
        self.embedded = limiter_on(MemoryStore(), self.clocks[1])
        self.do(Configure((RPM, TPM)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remote.close()
        self.embedded.close()

    def do(self, action: Action) -> None:
        action.do(self.remote, self.clocks[0])
        action.do(self.embedded, self.clocks[1])

    def count(self) -> None:
        """Let the aggregator see everything."""
        changes = self.model.changes("limits")
        assert process(self.model, records_of(changes)).failures == ()
        changes.clear()


def seen(windows: list[UsageSnapshot]) -> list[Any]:
    """What a window says. A limit the bucket has no more may be listed with nothing, or not at all."""
    return [
        (
            window.entity_id,
            window.resource,
            window.window_type,
            window.window_start,
            window.window_end,
            {name: total for name, total in window.counters.items() if total},
            window.total_events,
        )
        for window in windows
    ]


@given(stories, st.lists(st.tuples(subjects, queries), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_the_same_calls_give_the_same_usage(told: list[Action], asked: list[tuple[Any, Any]]) -> None:
    with Twins() as twins:
        for action in told:
            twins.do(action)
        twins.count()
        for subject, query in asked:
            ours, our_cursors = read_all(twins.remote, **subject, **query)
            theirs, their_cursors = read_all(twins.embedded, **subject, **query)
            assert seen(ours) == seen(theirs)
            assert our_cursors == their_cursors


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:
    """Many entities, so that one pass over the index does not find them all."""
    monkeypatch.setattr(usage, "ENTITIES_KEPT", 5)
    monkeypatch.setattr(usage, "ENTITIES_AT_ONCE", 3)
    with Twins() as twins:
        for hour in range(3):
            for number in range(0, 23, 1 + hour):
                twins.do(Take(f"key-{number:02}", "gpt", 1 + hour))
            twins.do(Wait(HOUR))
        twins.count()
        yield twins


@pytest.mark.parametrize("page_size", [1, 4, 5, 6, 1_000])
@pytest.mark.parametrize("window_type", ["hourly", "monthly", None])
def test_a_resource_with_many_entities_is_read_to_the_end(crowd: Twins, page_size: int, window_type: str) -> None:
    query: dict[str, Any] = {"resource": "gpt", "window_type": window_type, "page_size": page_size}
    ours, our_cursors = read_all(crowd.remote, **query)
    theirs, their_cursors = read_all(crowd.embedded, **query)
    assert ours == theirs
    assert our_cursors == their_cursors
    assert len({window.entity_id for window in ours}) == 23


def test_entities_without_a_window_in_the_times_do_not_end_the_list(crowd: Twins) -> None:
    """The month is not listed, its hours are not either; only the last hour's few entities are."""
    last = NEW_YEAR_2026_MS + 2 * HOUR * 1_000
    query = {"resource": "gpt", "start_time": last, "page_size": 3}
    ours, _ = read_all(crowd.remote, **query)
    assert ours == read_all(crowd.embedded, **query)[0]
    assert [window.entity_id for window in ours] == [f"key-{number:02}" for number in range(0, 23, 3)]


ELSEWHERE = [
    ("key-01", "gpt", 0),
    ("", "gpt", 0, 0),
    ("key#1", "gpt", 0, 0),
    ("key-01", "gpt#", 0, 0),
    ("k" * 3_000, "gpt", 0, 0),
]


@pytest.mark.parametrize("place", ELSEWHERE, ids=range(len(ELSEWHERE)))
def test_a_cursor_of_another_list_is_refused(crowd: Twins, place: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        crowd.remote.get_usage_snapshots("key-01", cursor=encode_cursor(place))
    assert caught.value.field == "cursor"


BEFORE = [("key-00", "gpt", 0, 0), ("key-04", "claude", 2, 0)]
BEHIND = [("key-04", "gpt", 1, 0), ("key-04", "z", 0, 0), ("z", "gpt", 0, 0)]


@pytest.mark.parametrize("query", [{"entity_id": "key-04"}, {"entity_id": "key-04", "resource": "gpt"}])
@pytest.mark.parametrize("place", [*BEFORE, *BEHIND])
def test_a_cursor_beside_the_list_only_says_where_to_go_on(crowd: Twins, query: Any, place: Any) -> None:
    page = crowd.remote.get_usage_snapshots(**query, window_type="hourly", cursor=encode_cursor(place))
    assert [window.entity_id for window in page.items] == (["key-04", "key-04"] if place in BEFORE else [])
