"""However a stream is delivered, the snapshots are the same, and the hours add up to what was taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from usage_model import answer, asking, empty_model, process, run, snapshot_items, spans

from simulation.model import Model
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.schema import bucket_key, encode_item
from zae_limiter.stores.dynamodb.usage_items import used_by_hour
from zae_limiter.stores.windows import HOUR_MS
from zae_limiter_aggregator.processor import Processor

NS = "ns1"
START = 1_767_225_600_000
EVENTS = "#ev"
LIMITS = ("rpm", "tpm", "a.b-c_tc", "wcu2")

Record = Mapping[str, Any]


class Step(NamedTuple):
    """One change of a bucket: in which hour by its writer's clock, and what it took."""

    hour: int
    events: int
    taken: Mapping[str, int]
    last_of_life: bool


steps = st.builds(
    Step,
    hour=st.integers(0, 3),
    events=st.integers(-1, 2),
    taken=st.dictionaries(st.sampled_from(LIMITS), st.integers(-1_500, 9_000), max_size=3),
    last_of_life=st.sampled_from([False] * 9 + [True]),
)


class Story:
    """The lives of one shard of a bucket, what its stream says of them, and what each hour should then have."""

    def __init__(self, entity_id: str, shard: int, told: Sequence[Step], *, drifting: bool) -> None:
        self.entity_id = entity_id
        self.records: list[Record] = []
        self.expected: dict[int, Counter[str]] = {}
        self._shard = shard
        self._key = bucket_key(NS, entity_id, "gpt", shard)
        lives = 0
        old: dict[str, Any] | None = None
        counters = Counter[str]()
        latest = -1
        for number, step in enumerate(told):
            hour = step.hour + (number // 4 if drifting else 0)
            change = {EVENTS: step.events, **step.taken}
            counters.update(change)
            new = self._image(f"life{lives}", START + hour * HOUR_MS + number, counters)
            self._tell("INSERT" if old is None else "MODIFY", old, new)
            if any(change.values()):
                latest = max(latest, hour)
                self.expected.setdefault(latest, Counter()).update(change)
            old = new
            if step.last_of_life:
                self._tell("REMOVE", old, None)
                lives, old, counters, latest = lives + 1, None, Counter(), -1

    def _image(self, inc: str, written_ms: int, counters: Mapping[str, int]) -> dict[str, Any]:
        totals = {f"b_{name}_tc": total for name, total in counters.items() if name != EVENTS}
        fields = {"entity_id": self.entity_id, "resource": "gpt", "inc": inc, "ev": counters[EVENTS]}
        return encode_item({**fields, "w0": f"{written_ms:x}.c1", "b_wcu_tc": written_ms % 97, **totals})

    def _tell(self, event: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        told = {
            "Keys": {"PK": {"S": self._key.pk}, "SK": {"S": self._key.sk}},
            "SequenceNumber": str(10**20 + len(self.records) * 1_000 + self._shard),
        }
        told |= {name: image for name, image in (("OldImage", old), ("NewImage", new)) if image is not None}
        self.records.append({"eventName": event, "dynamodb": told})


@st.composite
def stories(draw: st.DrawFn) -> list[Story]:
    drifting = draw(st.booleans())
    return [
        Story(entity_id, shard, draw(st.lists(steps, min_size=1, max_size=14)), drifting=drifting)
        for entity_id, shard in draw(st.sampled_from([[("a", 0)], [("a", 0), ("a", 1)], [("a", 0), ("b", 0)]]))
    ]


@st.composite
def deliveries(draw: st.DrawFn, count: int) -> list[list[int]]:
    """Batches of record numbers: every record at least once, in any order, some several times."""
    order = draw(st.permutations(range(count)))
    again = draw(st.lists(st.integers(0, count - 1), max_size=count))
    all_of_them = [*order, *again]
    if draw(st.booleans()):
        all_of_them = draw(st.permutations(all_of_them))
    cuts = sorted(draw(st.lists(st.integers(0, len(all_of_them)), max_size=6)))
    edges = [0, *cuts, len(all_of_them)]
    return [list(all_of_them[start:end]) for start, end in pairwise(edges)]


def usage_of(model: Model, entity_id: str) -> dict[int, dict[str, int]]:
    """What is read of an entity: by hours since the start, without zeros."""
    found = used_by_hour(span for span in spans(model) if span.life.entity_id == entity_id)
    return {(hour - START) // HOUR_MS: without_zeros({EVENTS: used.events, **used.milli}) for hour, used in found}


def expected_usage(told: Sequence[Story], entity_id: str) -> dict[int, dict[str, int]]:
    sums: dict[int, Counter[str]] = {}
    for story in told:
        if story.entity_id == entity_id:
            for hour, counters in story.expected.items():
                sums.setdefault(hour, Counter()).update(counters)
    return {hour: exact for hour, counters in sums.items() if (exact := without_zeros(counters))}


def without_zeros(counters: Mapping[str, int]) -> dict[str, int]:
    return {name: total for name, total in counters.items() if total}


def added_up(hours: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for counters in hours:
        total.update(counters)
    return without_zeros(total)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_every_delivery_gives_the_same_snapshots_and_exact_usage(data: st.DataObject) -> None:
    told = data.draw(stories())
    records = [record for story in told for record in story.records]
    in_order = empty_model()
    for record in records:
        assert process(in_order, [record]).failures == ()
    model = empty_model()
    for batch in data.draw(deliveries(len(records))):
        assert process(model, [records[number] for number in batch]).failures == ()
    assert snapshot_items(model) == snapshot_items(in_order)
    for entity_id in ("a", "b"):
        usage = usage_of(model, entity_id)
        assert usage == expected_usage(told, entity_id)
        taken = [counters for story in told if story.entity_id == entity_id for counters in story.expected.values()]
        assert added_up(usage.values()) == added_up(taken)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_invocations_at_the_same_time_with_lost_replies_and_crashes_change_nothing(data: st.DataObject) -> None:
    """Several processors, one call of one of them at a time. Those that crashed or failed are tried again later."""
    told = data.draw(stories())
    records = [record for story in told for record in story.records]
    in_order = empty_model()
    process(in_order, records)
    model = empty_model()
    chance = data.draw(st.randoms(use_true_random=False))
    batches = [[records[number] for number in batch] for batch in data.draw(deliveries(len(records)))]
    plans: list[Any] = [Processor(asking()).process(batch) for batch in batches]
    waiting: dict[int, Any] = dict.fromkeys(range(len(plans)))
    unfinished: list[int] = []

    def ask(operation: str, params: Any) -> Any:
        fate = chance.random()
        if fate < 0.05:
            raise NoAnswer("never sent", sent=False)
        reply = model.call(operation, params)
        if fate < 0.15:
            raise NoAnswer("the reply was lost")
        return reply

    while waiting:
        place = chance.choice(sorted(waiting))
        reply = waiting.pop(place)
        if chance.random() < 0.05:
            plans[place].close()
            unfinished.append(place)
            continue
        try:
            request = plans[place].throw(reply) if isinstance(reply, Exception) else plans[place].send(reply)
        except StopIteration as finished:
            if finished.value.failures:
                unfinished.append(place)
            continue
        waiting[place] = answer(request, ask)
    for place in unfinished:
        assert process(model, batches[place]).failures == ()
    assert snapshot_items(model) == snapshot_items(in_order)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_lost_record_is_made_good_by_a_later_one_of_its_hour(data: st.DataObject) -> None:
    """Without clocks that differ: all that counts are the first and the last change of an hour that came through."""
    count = data.draw(st.integers(3, 12))
    told = [Step(number // 6, 1, {"rpm": 1_000 + number}, False) for number in range(count)]
    story = Story("a", 0, told, drifting=False)
    lost = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    model = empty_model()
    for number in data.draw(st.permutations([number for number in range(count) if number not in lost])):
        process(model, [story.records[number]])
    expected = {}
    for hour in range(count // 6 + 1):
        heard = [number for number in range(count) if number // 6 == hour and number not in lost]
        if heard:
            between = told[heard[0] : heard[-1] + 1]
            expected[hour] = {EVENTS: len(between), "rpm": sum(step.taken["rpm"] for step in between)}
    assert usage_of(model, "a") == expected


def test_a_limit_that_appears_within_an_hour_counts_from_nothing_whatever_came_first() -> None:
    """The start of a limit that its bucket did not have yet is no start that was read later."""
    told = [Step(0, 1, {"rpm": 1}, False), Step(0, 1, {"tpm": 5}, False), Step(0, 1, {"tpm": 7}, False)]
    story = Story("a", 0, told, drifting=False)
    for order in ((0, 2, 1), (2, 0, 1), (2, 1, 0), (0, 1, 2)):
        model = empty_model()
        for number in order:
            process(model, [story.records[number]])
        assert usage_of(model, "a") == {0: {EVENTS: 3, "rpm": 1, "tpm": 12}}, order


def test_a_batch_normally_costs_one_write_per_hour_of_a_bucket() -> None:
    """In order, each once: the first guess is right also in the batches that go on with an hour."""
    told = [Story(name, 0, [Step(n // 6, 1, {"rpm": 1}, False) for n in range(12)], drifting=False) for name in "abc"]
    model = empty_model()
    calls: list[str] = []

    def ask(operation: str, params: Any) -> Any:
        calls.append(operation)
        return model.call(operation, params)

    for start in range(0, 12, 3):
        batch = [record for story in told for record in story.records[start : start + 3]]
        processed = run(Processor(asking()).process(batch), ask)
        assert (processed.records, processed.snapshots) == (9, 3)
    assert calls == ["UpdateItem"] * 12
