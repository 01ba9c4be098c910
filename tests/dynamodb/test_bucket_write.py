"""The life of one write: which event leads from which state to which."""

from __future__ import annotations

import pytest

from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb import bucket_write
from zae_limiter.stores.dynamodb.bucket_write import TRANSITIONS, BucketWrite, WriteEvent, WriteState
from zae_limiter.stores.dynamodb.requests import (
    CONDITION_FAILED,
    KEY_THROTTLED,
    Answer,
    CircuitOpen,
    NoAnswer,
    Refused,
)
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.protocol import Leg

OPEN, IN_DOUBT, DONE = WriteState


def write_in(state: WriteState, deltas: dict[str, int] | None = None) -> BucketWrite:
    leg = Leg("key", "gpt", (Limit.per_minute("rpm", 10),), "system")
    write = BucketWrite(bucket_key("ns", "key", "gpt"), leg, {"rpm": 1_000} if deltas is None else deltas)
    write.write_id = "1.a"
    write.done, write.doubtful = state is DONE, state is IN_DOUBT
    return write


def table_in_prose() -> dict[str, tuple[str, ...]]:
    """The rows of the table in the module's docstring: an event, and where it leads from each state."""
    lines = (bucket_write.__doc__ or "").splitlines()
    rows = (line.split() for line in lines if line.partition(":")[0].isupper() and len(line.split()) > 4)
    return {event.rstrip(":"): tuple(row[-3:]) for event, *row in rows}


def test_the_table_in_prose_is_the_one_that_holds() -> None:
    assert table_in_prose() == {
        event.name: tuple(state.name for state in TRANSITIONS[event].values()) for event in WriteEvent
    }


@pytest.mark.parametrize("event", WriteEvent)
@pytest.mark.parametrize("state", WriteState)
def test_every_event_leads_from_every_state_where_the_table_says(state: WriteState, event: WriteEvent) -> None:
    write = write_in(state)
    assert write.state is state
    write.advance(event)
    assert write.state is TRANSITIONS[event][state]


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        ({}, WriteEvent.ANSWERED),
        (Refused(CONDITION_FAILED), WriteEvent.REFUSED),
        (Refused(KEY_THROTTLED), WriteEvent.REFUSED),
        (NoAnswer("a timeout"), WriteEvent.LOST),
        (CircuitOpen(), WriteEvent.NOT_SENT),
        (None, WriteEvent.LOST),
    ],
)
@pytest.mark.parametrize("state", WriteState)
def test_an_answer_is_one_of_the_events(state: WriteState, answer: Answer | None, event: WriteEvent) -> None:
    write = write_in(state)
    write.note(answer)
    assert write.state is TRANSITIONS[event][state]


def test_doubt_outlives_a_refusal_and_ends_with_the_write_id() -> None:
    write = write_in(OPEN)
    write.note(NoAnswer("a reset"))
    write.note(Refused(CONDITION_FAILED))
    assert write.state is IN_DOUBT
    write.begin_anew("2.b")
    assert (write.state, write.write_id) == (OPEN, "2.b")


def test_only_what_it_gives_back_is_let_go() -> None:
    write = write_in(IN_DOUBT, {"rpm": 1_000, "tpm": -5_000})
    write.let_credits_go()
    assert (write.state, write.deltas, write.maybe_done) == (IN_DOUBT, {"rpm": 1_000}, True)


def test_a_write_of_which_nothing_is_left_is_done_and_stays_done_when_it_begins_anew() -> None:
    write = write_in(IN_DOUBT, {"tpm": -5_000})
    write.let_credits_go()
    assert write.state is DONE
    write.begin_anew("2.b")
    assert write.state is DONE
