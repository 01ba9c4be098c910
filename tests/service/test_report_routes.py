"""What operators look at over HTTP: levels, usage, changes, metrics, and what happens right now."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.service_world import ServiceWorld
from zae_limiter import Decided
from zae_limiter.service import event_stream
from zae_limiter.service.event_stream import EventStream

ASKED = {"entity": "key", "resource": "gpt", "consume": {"rpm": 1, "tpm": 100}}


def test_a_status_has_every_bucket_of_an_entity(world: ServiceWorld) -> None:
    world.post("/v1/take", ASKED)
    status = world.get("/v1/status?entity=key").json()
    (bucket,) = status["buckets"]
    assert (bucket["resource"], bucket["total_events"]) == ("gpt", 1)
    assert {level["name"]: level["available"] for level in bucket["limits"]} == {"rpm": 9, "tpm": 900}
    assert world.get("/v1/status?entity=other").json()["buckets"] == []
    assert world.get("/v1/status").json()["namespace"] == "default"
    assert world.get("/v1/status").json()["ready"] is True
    assert world.get("/v1/tightest").json()["buckets"][0]["entity"] == "key"


def test_usage_is_by_window_added_up_and_ranked(world: ServiceWorld) -> None:
    world.post("/v1/take", ASKED)
    world.post("/v1/take", {**ASKED, "entity": "other"})
    world.post("/v1/take", {**ASKED, "consume": {"rpm": 10}})
    hours = world.get("/v1/usage?entity=key&window=hourly").json()["usage"]
    assert (hours[0]["counters"], hours[0]["denials"]) == ({"rpm": 1, "tpm": 100}, {"rpm": 1})
    assert world.get("/v1/usage/summary?entity=key").json()["total"] == {"rpm": 1, "tpm": 100}
    assert world.get("/v1/usage/summary").json()["total_events"] == 2
    ranking = world.get("/v1/usage/top?by=entity&limit_name=tpm").json()["ranking"]
    assert {line["name"]: line["total"]["tpm"] for line in ranking} == {"key": 100, "other": 100}
    assert world.get("/v1/usage").status_code == 422
    assert world.get("/v1/usage?entity=key&window=yearly").status_code == 422
    assert world.get("/v1/usage?entity=key&start=yesterday").status_code == 422


def test_changes_are_in_the_audit_trail_under_the_name_of_the_client(world: ServiceWorld) -> None:
    world.post("/v1/entities", {"id": "acme"})
    (event,) = world.get("/v1/audit?entity=acme").json()["events"]
    assert (event["action"], event["principal"]) == ("entity_created", "loopback")
    assert world.get("/v1/audit").json()["events"][0]["entity"] == "acme"


def test_leases_are_listed(world: ServiceWorld) -> None:
    lease = world.post("/v1/leases", ASKED).json()["lease"]
    assert [found["lease"] for found in world.get("/v1/leases?entity=key").json()["leases"]] == [lease]
    assert world.get("/v1/leases?entity=other").json()["leases"] == []


def test_what_needs_attention_is_asked_of_what_knows_it(world: ServiceWorld) -> None:
    assert world.get("/v1/attention").status_code == 404

    async def source(namespace: str) -> dict[str, Any]:
        return {"namespace": namespace, "items": []}

    world.backend.attention = source
    assert world.get("/v1/attention").json() == {"namespace": "default", "items": []}


def test_metrics_count_decisions_and_answers(world: ServiceWorld) -> None:
    world.post("/v1/take", ASKED)
    world.post("/v1/take", {**ASKED, "consume": {"rpm": 10}})
    text = world.get("/metrics").text
    assert 'zae_limiter_service_answers_total{operation="take",status="200"} 1.0' in text
    assert 'zae_limiter_service_answers_total{operation="take",status="429"} 1.0' in text
    assert 'outcome="granted"' in text


class Stream:
    """A client that listens to events, as uvicorn would connect it."""

    def __init__(self, world: ServiceWorld, query: str = "") -> None:
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/events",
            "raw_path": b"/v1/events",
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost")],
        }
        self._app = world.app

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    def listen(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._app(self._scope, self.receive, self.send))

    async def until(self, word: bytes) -> bytes:
        async with asyncio.timeout(10):
            while word not in self.text:
                await asyncio.sleep(0.005)
        return self.text

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def test_events_come_as_they_happen_and_the_stream_ends_with_the_client(world: ServiceWorld) -> None:
    async def scenario() -> None:
        stream, other = Stream(world, "entity=key"), Stream(world, "entity=other")
        tasks = [stream.listen(), other.listen()]
        await stream.until(b"listening")
        await other.until(b"listening")
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        text = await stream.until(b"event: decided")
        document = json.loads(text.split(b"data: ")[1].split(b"\n")[0])
        assert (document["entity"], document["granted"], document["requested"]) == ("key", True, {"rpm": 1})
        assert b"decided" not in other.text
        stream.gone.set()
        async with asyncio.timeout(10):
            await tasks[0]
        world.backend.events.close()
        async with asyncio.timeout(10):
            await tasks[1]
        assert other.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    world.run(scenario())
    assert world.get("/v1/events").status_code == 503


def test_a_listener_that_does_not_keep_up_is_told_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_WAITING", 3)
    event = Decided("key", "gpt", {"rpm": 1}, True, None, 0.0)  # type: ignore[arg-type]

    async def scenario() -> list[dict[str, Any]]:
        stream = EventStream()
        listener = stream.listen(lambda event: True)
        assert listener is not None
        for _ in range(5):
            stream(event)
        async for told in listener.pieces():
            return told
        return []

    told = asyncio.run(scenario())
    assert told[0] == {"event": "missed", "count": 2}
    assert [document["event"] for document in told[1:]] == ["decided"] * 3


def test_there_are_not_more_listeners_than_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_LISTENERS", 1)

    async def scenario() -> None:
        stream = EventStream()
        first = stream.listen(lambda event: True)
        assert first is not None
        assert stream.listen(lambda event: True) is None
        stream.leave(first)
        assert stream.listen(lambda event: True) is not None

    asyncio.run(scenario())
