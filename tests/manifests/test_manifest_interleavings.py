"""Runs at the same time, step by step in every drawn order: nothing that exists is ever without a record."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from applied_manifests import Crashed, applied, applied_through, contents, managed, manifest, meaning

from zae_limiter import SyncRepository
from zae_limiter.manifests.model import Manifest

TEXTS = [
    "entities: {shared: , a: {parent: shared, limits: {gpt: [x:1]}}}",
    "entities: {shared: {name: S}, b: {parent: shared, limits: {gpt: [x:2]}}}\nresources: {gpt: [x:9]}",
    "entities: {a: {limits: {gpt: [x:3]}}}\nsystem: {limits: [x:8]}",
    "",
]
SEEDS = 150
CRASH_SEEDS = 20
KEEPS_ITS_TURN = 0.85
"""Runs that always alternate would all find out before their first change."""


class Turns:
    """Lets one of several threads go on at a time, up to its next call of the repository; who, is drawn."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._change = threading.Condition()
        self._waiting: dict[int, bool] = {}
        self._expected = 0
        self._last = -1

    def run(self, *jobs: Any) -> None:
        self._expected = len(jobs)
        threads = [threading.Thread(target=self._play, args=(place, job)) for place, job in enumerate(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _play(self, place: int, job: Any) -> None:
        self.wait(place)
        try:
            job(place)
        finally:
            with self._change:
                self._expected -= 1
                self._give_turn()

    def wait(self, place: int) -> None:
        """Until it is this thread's turn."""
        with self._change:
            self._waiting[place] = False
            self._give_turn()
            while not self._waiting[place]:
                assert self._change.wait(20)
            del self._waiting[place]

    def _give_turn(self) -> None:
        if len(self._waiting) == self._expected and self._waiting:
            if self._last not in self._waiting or self._draw.random() > KEEPS_ITS_TURN:
                self._last = self._draw.choice(sorted(self._waiting))
            self._waiting[self._last] = True
            self._change.notify_all()


class Stepping:
    """A repository whose every call waits for its turn; the ``crash_at``-th never comes."""

    def __init__(self, repository: SyncRepository, turns: Turns, place: int, crash_at: int | None) -> None:
        self._repository = repository
        self._turns = turns
        self._place = place
        self._left = crash_at

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._repository, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._turns.wait(self._place)
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    raise Crashed
            return method(*args, **kwargs)

        return call


def play(repository: SyncRepository, wanted: list[Manifest], seed: int, crash_at: int | None) -> None:
    turns = Turns(seed)

    def job(place: int) -> None:
        stepping = Stepping(repository, turns, place, crash_at if place == 0 else None)
        applied_through(stepping, wanted[place])

    turns.run(*[job] * len(wanted))


@pytest.mark.parametrize("seed", [*range(SEEDS), 371, 400, 1129, 1232])
def test_whatever_the_order_everything_that_exists_is_recorded(seed: int) -> None:
    draw = random.Random(seed)
    with SyncRepository.open("memory://") as repository:
        applied(repository, manifest(draw.choice(TEXTS)))
        for _ in range(2):
            play(repository, [manifest(draw.choice(TEXTS)) for _ in range(draw.choice([2, 3]))], seed, None)
            assert set(map(str, contents(repository))) <= managed(repository)
        last = manifest(draw.choice(TEXTS))
        applied(repository, last)
        assert contents(repository) == meaning(last.things)
        assert managed(repository) == set(map(str, last.things))


@pytest.mark.parametrize("seed", range(CRASH_SEEDS))
def test_a_crash_beside_another_run_is_repaired(seed: int) -> None:
    """Not in every order: who dies between a creation and the record that another just settles leaves it behind."""
    draw = random.Random(seed)
    with SyncRepository.open("memory://") as repository:
        applied(repository, manifest(TEXTS[2]))
        play(repository, [manifest(TEXTS[0]), manifest(draw.choice(TEXTS))], seed, draw.randrange(5, 60))
        last = manifest(draw.choice(TEXTS))
        applied(repository, last)
        assert contents(repository) == meaning(last.things)
