"""Calls that are begun at once: what must be there for that, and what becomes of them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from support.scripted_server import Heard, Server, always, refusal, reply, reset, serving
from support.transports import get
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.transport import asyncio_transport
from zae_limiter.stores.dynamodb.transport.asyncio_transport import AsyncioTransport

pytestmark = pytest.mark.usefixtures("no_credentials_here")

FINE = reply({"Item": {"PK": {"S": "a"}}})
ASKED = get("t", "a")


class Notes(list[Any]):
    def take(self, failure: Any) -> None:
        self.append(failure)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(always(FINE)) as running:
        yield running


def warm(server: Server, work: Callable[[AsyncioTransport], Awaitable[Any]]) -> Any:
    """Run ``work`` with a transport that has an idle connection."""

    async def main() -> Any:
        transport = AsyncioTransport(server.target)
        script, server.script = server.script, always(FINE)
        await transport.call("GetItem", ASKED, 5.0)
        server.script = script
        try:
            return await work(transport)
        finally:
            await transport.close()

    return asyncio.run(main())


def test_nothing_is_begun_before_there_is_a_connection(server: Server) -> None:
    async def main() -> Any:
        transport = AsyncioTransport(server.target)
        begun = transport.begin("GetItem", ASKED, 5.0, print)
        await transport.close()
        return begun

    assert asyncio.run(main()) is None
    assert server.heard == []


def test_a_call_is_sent_before_any_task_waits_for_it(server: Server) -> None:
    notes = Notes()

    async def work(transport: AsyncioTransport) -> Any:
        flight = transport.begin("GetItem", ASKED, 5.0, notes.take)
        assert flight is not None
        assert not flight.done()
        return dict(await flight)

    assert warm(server, work) == {"Item": {"PK": {"S": "a"}}}
    assert notes == [None]
    assert {heard.connection for heard in server.heard} == {0}


def test_a_connection_carries_one_call_at_a_time(server: Server) -> None:
    async def work(transport: AsyncioTransport) -> Any:
        first = transport.begin("GetItem", ASKED, 5.0, print)
        second = transport.begin("GetItem", ASKED, 5.0, print)
        assert first is not None
        await first
        third = transport.begin("GetItem", ASKED, 5.0, print)
        assert third is not None
        await third
        return second

    assert warm(server, work) is None


def test_no_more_are_in_use_than_allowed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_transport, "CONNECTIONS", 1)
    given_up = threading.Event()
    server.script = lambda heard, connection: (given_up.wait(5.0), FINE)[1]

    async def work(transport: AsyncioTransport) -> Any:
        flight = transport.begin("GetItem", ASKED, 5.0, print)
        with pytest.raises(NoAnswer, match="busy"):
            await transport.call("GetItem", ASKED, 0.02)
        given_up.set()
        assert flight is not None
        await flight
        return dict(await transport.call("GetItem", ASKED, 5.0))

    assert warm(server, work) == {"Item": {"PK": {"S": "a"}}}
    assert len(server.connections) == 1


def test_a_refusal_and_a_silence_are_told_and_noted(server: Server) -> None:
    notes = Notes()

    async def work(transport: AsyncioTransport) -> Any:
        server.script = always(refusal("ResourceNotFoundException"))
        refused = transport.begin("GetItem", ASKED, 5.0, notes.take)
        assert refused is not None
        with pytest.raises(Refused) as caught:
            await refused
        assert notes == [caught.value]

        def break_it(heard: Heard, connection: socket.socket) -> None:
            reset(connection)

        server.script = break_it
        broken = transport.begin("GetItem", ASKED, 5.0, notes.take)
        assert broken is not None
        with pytest.raises(NoAnswer) as silence:
            await broken
        assert silence.value.sent
        assert isinstance(silence.value.__cause__, OSError)
        assert notes[1:] == [silence.value]
        return transport.begin("GetItem", ASKED, 5.0, notes.take)

    assert warm(server, work) is None, "what broke is not used again"


@pytest.mark.parametrize("earlier_s", [5.0, 0.05])
def test_every_call_has_its_own_time(server: Server, earlier_s: float) -> None:
    """One timer serves a connection: an earlier call may have had more time, or less."""

    async def work(transport: AsyncioTransport) -> Any:
        first = transport.begin("GetItem", ASKED, earlier_s, print)
        assert first is not None
        await first
        server.script = lambda heard, connection: None
        began = time.monotonic()
        second = transport.begin("GetItem", ASKED, 0.2, print)
        assert second is not None
        with pytest.raises(NoAnswer, match="the time is up"):
            await second
        return time.monotonic() - began

    assert 0.19 < warm(server, work) < 2


def test_a_connection_that_was_closed_meanwhile_is_not_used(server: Server) -> None:
    async def work(transport: AsyncioTransport) -> Any:
        server.close_connections()
        begun = transport.begin("GetItem", ASKED, 5.0, print)
        assert begun is None
        return dict(await transport.call("GetItem", ASKED, 5.0))

    assert warm(server, work) == {"Item": {"PK": {"S": "a"}}}


def test_what_a_new_signature_may_mend_is_asked_again(server: Server) -> None:
    notes = Notes()
    badly = [refusal("InvalidSignatureException", date="Mon, 01 Jan 2018 00:00:00 GMT")]

    async def work(transport: AsyncioTransport) -> Any:
        server.script = lambda heard, connection: badly.pop() if badly else FINE
        flight = transport.begin("GetItem", ASKED, 5.0, notes.take)
        assert flight is not None
        return dict(await flight)

    assert warm(server, work) == {"Item": {"PK": {"S": "a"}}}
    assert notes == [None]
    assert len(server.heard) == 3, "once warm, once begun, once mended"


def test_closing_tells_those_who_wait(server: Server) -> None:
    async def work(transport: AsyncioTransport) -> Any:
        server.script = lambda heard, connection: None
        flight = transport.begin("GetItem", ASKED, 5.0, print)
        assert flight is not None
        await transport.close()
        with pytest.raises(NoAnswer):
            await flight

    warm(server, work)
