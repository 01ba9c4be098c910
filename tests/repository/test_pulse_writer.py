"""The thread that writes the pulse: begins with the first decision, ends with the limiter, disturbs none."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zae_limiter import Limit, RateLimiter, SyncRateLimiter, ValidationError
from zae_limiter.repository import pulse_writer

RPM = Limit.per_minute("rpm", 2)


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.01)


EARLIER: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _earlier() -> None:
    """Other tests may have left limiters open."""
    EARLIER.clear()
    EARLIER.update(threading.enumerate())


def threads() -> list[str]:
    found = [thread for thread in threading.enumerate() if thread not in EARLIER]
    return [thread.name for thread in found if thread.name == "zae-limiter-pulse"]


def take(limiter: SyncRateLimiter, entity_id: str = "key") -> None:
    with limiter.acquire(entity_id, "gpt", {"rpm": 1}, limits=[RPM]):
        pass


def test_the_first_decision_begins_it_and_closing_ends_it() -> None:
    with SyncRateLimiter.open("memory://", pulse=True) as limiter:
        assert threads() == []
        take(limiter)
        assert threads() == ["zae-limiter-pulse"]
        until(lambda: limiter.get_pulse().processes == 1)
    assert threads() == []


def test_an_async_limiter_has_one_too_and_writes_what_is_left_on_closing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"

    async def work() -> None:
        opening = RateLimiter.open(f"{url}?pulse=on")
        async with opening as limiter, limiter.acquire("key", "gpt", {"rpm": 1}, limits=[RPM]):
            pass

    asyncio.run(work())
    with SyncRateLimiter.open(url) as reader:
        assert [row.entity_id for row in reader.get_pulse().rows] == ["key"]
        take(reader)
        assert threads() == []
    assert threads() == []


def test_every_namespace_has_a_pulse_of_its_own() -> None:
    with SyncRateLimiter.open("memory://", pulse=True) as limiter:
        limiter.repository.register_namespace("other")
        other = SyncRateLimiter(limiter.repository.in_namespace("other"))
        take(limiter, "mine")
        take(other, "theirs")
        assert len(threads()) == 1
        limiter.write_pulse()
        other.write_pulse()
        assert [row.entity_id for row in limiter.get_pulse().rows] == ["mine"]
        assert [row.entity_id for row in other.get_pulse().rows] == ["theirs"]


def test_an_observer_is_told_as_well() -> None:
    seen: list[object] = []
    with SyncRateLimiter.open("memory://", pulse=True, observer=seen.append) as limiter:
        take(limiter)
        limiter.write_pulse()
        assert limiter.get_pulse().rows[0].calls == 1
    assert [type(event).__name__ for event in seen][:2] == ["StoreCalled", "Decided"]


def test_a_store_that_fails_is_told_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse_writer, "WRITE_EVERY_MS", 20)
    with SyncRateLimiter.open("memory://", pulse=True) as limiter, caplog.at_level(logging.WARNING, "zae_limiter"):
        space = limiter.repository._core.space
        tries: list[int] = []

        def fail(*_: object) -> None:
            tries.append(1)
            raise OSError("no disk")

        whole, space.put_pulse = space.put_pulse, fail  # type: ignore[method-assign,assignment]
        take(limiter)
        until(lambda: len(tries) > 2)
        space.put_pulse = whole  # type: ignore[method-assign]
        until(lambda: limiter.get_pulse().processes == 1)
    assert [record.message for record in caplog.records] == [
        "the pulse of this process could not be written, will try again: no disk"
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_counts_anew(tmp_path: Path) -> None:
    with SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", pulse=True) as limiter:
        take(limiter)
        limiter.write_pulse()
        child = os.fork()
        if child == 0:
            try:
                take(limiter, "child")
                limiter.write_pulse()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        pulse = limiter.get_pulse()
        assert (pulse.processes, sum(pulse.granted)) == (2, 2)
        assert {row.entity_id: row.calls for row in pulse.rows} == {"key": 1, "child": 1}


@pytest.mark.parametrize("url", ["memory://?pulse=yes", "memory://?pulse=on&pulse=on"])
def test_a_url_says_it_rightly_or_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="pulse=on or pulse=off"):
        SyncRateLimiter.open(url)


def test_a_wrong_option_is_refused() -> None:
    with pytest.raises(ValidationError, match="True or False"):
        SyncRateLimiter.open("memory://", pulse="on")  # type: ignore[arg-type]


def test_the_option_wins_over_the_url() -> None:
    opened = SyncRateLimiter.open("memory://?pulse=on", pulse=False)
    with opened as limiter, pytest.raises(ValidationError, match="opened"):
        limiter.write_pulse()
