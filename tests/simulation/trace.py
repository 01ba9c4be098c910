"""The story of a failed schedule: what was asked of a bucket, and what became of it."""

from __future__ import annotations

from collections import deque
from shlex import quote
from typing import Any, NamedTuple

from simulation.reference import read_bucket
from simulation.violations import Place, Verb, Violation
from simulation.words import described
from zae_limiter.stores.dynamodb.requests import Call, Refused

STEPS_TOLD = 60


class Step(NamedTuple):
    """One thing that happened to a bucket."""

    at: int
    verb: Verb | None
    call: Call | None
    outcome: Any
    item: Any


class Trace:
    """The last steps of every bucket. They are only put into words when something failed."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._steps: dict[Place, deque[Step]] = {}

    def note(self, place: Place, at: int, verb: Verb | None, call: Call | None, outcome: Any, item: Any) -> None:
        """Remember a step. ``item`` is the bucket after it."""
        steps = self._steps.get(place)
        if steps is None:
            steps = self._steps[place] = deque(maxlen=STEPS_TOLD)
        steps.append(Step(at, verb, call, outcome, item))

    def told(self, place: Place) -> str:
        """The steps of one bucket, a line each."""
        return "\n".join(self._line(place, step) for step in self._steps.get(place, ())) or "  (nothing)"

    def _line(self, place: Place, step: Step) -> str:
        verb = step.verb
        who = "" if verb is None else f"{verb.client} {verb.kind} (since {verb.started - self._start})"
        asked = "" if step.call is None else described(step.call, place)
        outcome = step.outcome.code if isinstance(step.outcome, Refused) else step.outcome
        return f"  {step.at - self._start:>8} ms  {who:<28} {asked:<60} {outcome:<12} {self._state(step.item)}"

    def _state(self, item: Any) -> str:
        if item is None:
            return "no bucket"
        bucket = read_bucket(item)
        tokens = " ".join(
            f"{name}={held.tk}{'' if held.active else '(rests)'}" for name, held in bucket.limits.items()
        )
        return f"tk {tokens} rf={bucket.rf - self._start} cv={bucket.cv} ttl={bucket.ttl}"


class FailedSchedule(AssertionError):
    """A schedule broke an invariant. The message tells which, how to run it again, and what happened."""

    def __init__(self, profile: str, seed: int, cause: BaseException, story: str) -> None:
        self.invariant = cause.invariant if isinstance(cause, Violation) else None
        self.profile = profile
        self.seed = seed
        where = "" if not isinstance(cause, Violation) or cause.place is None else f" at {cause.place[0]}"
        super().__init__(
            f"{type(cause).__name__}{where}: {cause}\n"
            f"profile {profile!r}, seed {seed}; again: python tests/simulation replay {quote(profile)} {seed}\n{story}"
        )
