"""What must be true when nothing moves any more, and all faults are over.

Nobody is left at a desk. And after a quiet time long enough for every bucket to be full, whoever asks for as much as
the smallest burst on the way is granted it, however the buckets were divided, and whoever knows of that.
"""

from __future__ import annotations

from simulation.fleet import Fleet
from simulation.reference import Reference
from simulation.violations import DESKS, NEVER_FOR_EVER, Violation
from simulation.world import World
from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.protocol import Draw, Grant, Look

PATIENCE = 3
QUIET_MS = 120_000
"""Longer than anybody remembers that a shard is lost, or a denial; and than any two clocks differ."""


def check_desks(fleet: Fleet) -> None:
    """Nobody waits for anybody."""
    for client in fleet.clients:
        if client.vanished:
            continue  # whoever wrote for all is not coming back
        for key, desk in client.space.desks._desks.items():
            raise Violation(DESKS, key, f"{client.name} still has {len(desk.line)} waiting behind somebody")


def check_everything_is_granted(fleet: Fleet, world: World) -> None:
    """After a quiet time everybody gets all there is, asked for at once."""
    world.recover_namespace()
    rng = fleet.rng
    entity, resource = rng.choice(world.entities), rng.choice(world.resources)
    knowing = [client for client in fleet.clients if not client.vanished]
    stranger = fleet.client()
    client = rng.choice(knowing) if knowing and rng.random() < 0.7 else stranger
    for one in (client, stranger):
        one.skew = one.lead = 0
    _wait_until_full(fleet)
    try:
        look: Look = fleet.at_once(stranger.space.look(entity, resource, {}, None, fleet.now))
    except ValidationError:
        return  # no limits hold for it any more
    wanted: dict[str, int] = {}
    for leg in look.legs:
        if not fleet.oracle.families.is_whole((leg.entity_id, leg.resource)):
            return
        for limit in leg.limits:
            wanted[limit.name] = min(wanted.get(limit.name, limit.burst), limit.burst)
    own = look.legs[0].names
    draw = Draw(entity, resource, {name: amount for name, amount in wanted.items() if name in own})
    outcome = None
    for _ in range(PATIENCE):  # limits that were raised are obeyed by the first who comes, and filled for the next
        outcome = fleet.at_once(client.space.draw(draw, fleet.now))
        if isinstance(outcome, Grant):
            return
        _wait_until_full(fleet)
    raise Violation(NEVER_FOR_EVER, world.place_of((entity, resource)), f"{draw} was refused: {outcome}")


def _wait_until_full(fleet: Fleet) -> None:
    oracle = fleet.oracle
    full_at = [
        _full_from_empty(reference, name, fleet.now)
        if oracle.is_far_ahead(place, fleet.now)
        else reference.full_at(name)
        for place, reference in oracle.references.items()
        for name in reference.positions
    ]
    fleet.now_us = max([fleet.now, *full_at]) * 1000 + QUIET_MS * 1000


def _full_from_empty(reference: Reference, name: str, now: int) -> int:
    """What a clock that is wrong has written is nobody's wait: it is brought back by the first who comes."""
    terms = reference.terms[name]
    return now + terms.burst * terms.rp // terms.ra


def everything_is_over(fleet: Fleet, world: World) -> None:
    """All of it."""
    check_desks(fleet)
    check_everything_is_granted(fleet, world)
