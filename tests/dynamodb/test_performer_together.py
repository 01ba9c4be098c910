"""Calls that are made at the same time: over connections of their own, all of them sent before any is waited for."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.scripted_server import Heard, Server, refusal, reply, reset, serving
from support.transports import SECONDS, get
from zae_limiter.running.async_driver import AsyncDriver
from zae_limiter.running.clocks import machine_clock, machine_timer
from zae_limiter.running.plan import Plan
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.performer import RequestPerformer
from zae_limiter.stores.dynamodb.requests import Call, DeadlineOver, NoAnswer, Refused, Together
from zae_limiter.stores.dynamodb.transport.connection_pool import SocketConnection
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS

pytestmark = pytest.mark.usefixtures("no_credentials_here")

NAMES = ("a", "b", "c")


def name_in(heard: Heard) -> str:
    name: str = json.loads(heard.body)["Key"]["PK"]["S"]
    return name


def answer(heard: Heard, _: object = None) -> bytes:
    """What it was asked for."""
    return reply({"Item": {"PK": {"S": name_in(heard)}}})


def answer_when_all_are_heard() -> Callable[[Heard, object], bytes]:
    """Each call needs a connection of its own then: none has an answer before all were sent."""
    all_heard = threading.Barrier(len(NAMES), timeout=SECONDS / 2)

    def script(heard: Heard, _: object) -> bytes:
        all_heard.wait()
        return answer(heard)

    return script


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(answer) as running:
        yield running


def calls(give_up_at: int | None = None) -> list[Call]:
    late = machine_timer() + round(SECONDS * 1000) if give_up_at is None else give_up_at
    return [Call("GetItem", get("t", name), late) for name in NAMES]


def answers(asked: list[Call]) -> Plan[Any]:
    return (yield from Together(asked))


Ask = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, server: Server) -> Iterator[Ask]:
    """Makes calls together, and gives their answers."""
    performer = RequestPerformer("t", server.target, deadline=SECONDS)
    if request.param == "sync":
        driver = SyncDriver(machine_clock, performer.perform)
        yield lambda *late: driver.run(answers(calls(*late)))
        performer.close()
    else:
        with asyncio.Runner() as runner:
            looped = AsyncDriver(machine_clock, performer.perform_async, performer.attempt)
            yield lambda *late: runner.run(looped.run(answers(calls(*late))))
            runner.run(performer.aclose())


def names_in(found: list[Any]) -> list[str]:
    return [one["Item"]["PK"]["S"] for one in found]


def test_each_call_has_its_own_answer_and_the_connections_are_used_again(ask: Ask, server: Server) -> None:
    server.script = answer_when_all_are_heard()
    for _ in range(3):
        assert names_in(ask()) == list(NAMES)
    assert len(server.connections) == len(NAMES)


def test_all_are_sent_before_any_is_waited_for(ask: Ask, server: Server) -> None:
    ask()
    server.script = answer_when_all_are_heard()
    assert names_in(ask()) == list(NAMES)


def test_what_one_is_refused_or_never_told_concerns_that_one_only(ask: Ask, server: Server) -> None:
    ask()

    def answer_some(heard: Heard, connection: Any) -> bytes | None:
        if name_in(heard) == "a":
            return refusal("ValidationException")
        if name_in(heard) == "b":
            reset(connection)
            return None
        return answer(heard)

    server.script = answer_some
    refused, lost, found = ask()
    assert isinstance(refused, Refused)
    assert refused.code == "ValidationException"
    assert isinstance(lost, NoAnswer)
    assert lost.sent
    assert names_in([found]) == ["c"]
    server.script = answer
    assert names_in(ask()) == list(NAMES)


def test_calls_whose_time_is_over_are_not_sent(ask: Ask, server: Server) -> None:
    ask()
    count = len(server.heard)
    assert [type(one) for one in ask(machine_timer() - 1)] == [DeadlineOver] * len(NAMES)
    assert len(server.heard) == count


def test_a_connection_that_was_closed_meanwhile_is_replaced(ask: Ask, server: Server) -> None:
    ask()
    server.close_connections()
    assert names_in(ask()) == list(NAMES)
    assert len(server.heard) == 2 * len(NAMES)


def test_an_interrupted_caller_leaves_no_connection_in_use(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    performer = RequestPerformer("t", server.target, deadline=SECONDS)
    server.script = answer_when_all_are_heard()
    performer.perform(Together(calls()))
    (pool,) = performer._calls.transport()._process._channels.values()  # type: ignore[attr-defined]
    while len(pool._idle._connections) < len(NAMES):  # at first one may have served two, one after the other
        performer.perform(Together(calls()))
    receive, interrupted = SocketConnection.receive, []

    def interrupt(self: SocketConnection, give_up_at: float) -> Any:
        interrupted.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(SocketConnection, "receive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        performer.perform(Together(calls()))
    assert len(interrupted) == 1
    monkeypatch.setattr(SocketConnection, "receive", receive)
    assert pool._permits.qsize() == CONNECTIONS
    assert not pool._idle._connections
    assert names_in(performer.perform(Together(calls()))) == list(NAMES)
    performer.close()


def test_a_call_with_credentials_that_have_expired_is_signed_anew(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", "AKIDOLD"), ("AWS_SECRET_ACCESS_KEY", "s" * 40)):
        monkeypatch.setenv(name, value)
    performer = RequestPerformer("t", server.target._replace(credentials=None), deadline=SECONDS)
    performer.perform(Together(calls()))

    def refuse_the_old(heard: Heard, _: object) -> bytes:
        if "AKIDOLD" in heard.headers["authorization"]:
            return refusal("ExpiredTokenException")
        return answer(heard)

    server.script = refuse_the_old
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEW")
    assert names_in(performer.perform(Together(calls()))) == list(NAMES)
    performer.close()
