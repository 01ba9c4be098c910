"""What must be true when nothing moves any more, and all faults are over.

No caller is left in a write queue. After a quiet time long enough for every bucket to be full, a client that asks any
of them for as much as the smallest burst on the way is granted it, or told a wait after which it is, however the
buckets were split, and whether or not the client knows of that.
"""

from __future__ import annotations

from math import inf

from simulation.clients import Client
from simulation.fleet import Fleet
from simulation.invariants import TOLERATED_MS, Oracle
from simulation.violations import DESKS, NEVER_FOR_EVER, Place, Violation
from simulation.world import World
from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.protocol import Denial, Draw, Grant, Look

QUIET_MS = 120_000
"""Longer than any client remembers that a shard is lost, or a denial; and than any two clocks differ."""


def check_queues(fleet: Fleet) -> None:
    """No caller waits for another."""
    for client in fleet.clients:
        if client.vanished:
            continue  # the leader is not coming back
        for key, desk in client.space.batching.queues._queues.items():
            raise Violation(DESKS, key, f"{client.name} still has {len(desk)} waiting behind a leader")


def check_everything_is_granted(fleet: Fleet, world: World) -> None:
    """After a quiet time all there is of any bucket is granted at once, to a new client and to those that know it."""
    world.recover_namespace()
    for client in fleet.clients:
        client.skew = client.lead = 0
    for entity in world.entities:
        for resource in world.resources:
            _check_granted(fleet, world, entity, resource, None)
    knowing = [client for client in fleet.clients if not client.vanished]
    if knowing:
        entity, resource = fleet.rng.choice(world.entities), fleet.rng.choice(world.resources)
        _check_granted(fleet, world, entity, resource, fleet.rng.choice(knowing))


def _check_granted(fleet: Fleet, world: World, entity: str, resource: str, asking: Client | None) -> None:
    """Granted at once, or after the very wait that was told: by then limits that were raised are filled."""
    _wait_until_full(fleet)
    try:
        look: Look = fleet.at_once(_stranger(fleet).space.look(entity, resource, {}, None, fleet.now))
    except ValidationError:
        return  # no limits hold for it any more
    wanted: dict[str, int] = {}
    for leg in look.legs:
        if not fleet.oracle.families.is_whole((leg.entity_id, leg.resource)):
            return
        for limit in leg.limits:
            wanted[limit.name] = min(wanted.get(limit.name, limit.burst), limit.burst)
    draw = Draw(entity, resource, wanted)
    longest_wait = _longest_wait(fleet, look)
    outcome = fleet.at_once((asking or _stranger(fleet)).space.draw(draw, fleet.now))
    if isinstance(outcome, Denial) and outcome.wait_ms is not None:
        if outcome.wait_ms > longest_wait:
            raise Violation(NEVER_FOR_EVER, world.place_of((entity, resource)), f"{draw} is told to wait: {outcome}")
        fleet.now_us += outcome.wait_ms * 1000
        outcome = fleet.at_once((asking or _stranger(fleet)).space.draw(draw, fleet.now))
    if not isinstance(outcome, Grant):
        raise Violation(NEVER_FOR_EVER, world.place_of((entity, resource)), f"{draw} was refused: {outcome}")


def _longest_wait(fleet: Fleet, look: Look) -> float:
    """How long a denial may be where a wrong clock has written: a bucket that owes goes on from what it owed then.

    And what was raised is filled from what it was, at most from nothing.
    """
    oracle, now = fleet.oracle, fleet.now
    astray = [place for place in oracle.references if oracle.is_far_ahead(place, now)]
    if not astray:
        return inf
    waits = [
        _full_once_brought_back(oracle, place, name, now) - now
        for place in astray
        for name in oracle.references[place].positions
    ]
    raised = [
        limit.burst * limit.refill_period_seconds * 1000 / limit.refill_amount
        for leg in look.legs
        for limit in leg.limits
        if limit.refill_period_seconds is not None  # a calendar limit is raised at once
    ]
    return max([*waits, *raised]) + TOLERATED_MS


def _stranger(fleet: Fleet) -> Client:
    """A client that knows nothing, and whose clock is right."""
    stranger = fleet.client()
    stranger.skew = stranger.lead = 0
    return stranger


def _wait_until_full(fleet: Fleet) -> None:
    oracle = fleet.oracle
    full_at = [
        _full_once_brought_back(oracle, place, name, fleet.now)
        if oracle.is_far_ahead(place, fleet.now)
        else reference.full_at(name)
        for place, reference in oracle.references.items()
        for name in reference.positions
    ]
    fleet.now_us = max([fleet.now, *full_at]) * 1000 + QUIET_MS * 1000


def _full_once_brought_back(oracle: Oracle, place: Place, name: str, now: int) -> int:
    """What a clock that is wrong has written makes no caller wait: the first client that comes brings it back."""
    reference = oracle.references[place]
    terms = reference.terms[name]
    owed = min(reference.level(name, oracle.latest_moment(place)), 0)
    return now - (owed - terms.burst) * terms.shards * terms.rp // terms.ra + 1


def everything_is_over(fleet: Fleet, world: World) -> None:
    """All of it."""
    check_queues(fleet)
    check_everything_is_granted(fleet, world)
