"""The entities, limits and habits of a run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from simulation.fleet import Fleet
from simulation.reference import due_of_all, read_bucket
from simulation.violations import NOTICE, PAID, WAIT, WATCHED, Violation, owner_of, shard_of
from zae_limiter.exceptions import EntityExistsError, EntityNotFoundError, ValidationError
from zae_limiter.lease.ledger import Ledger
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.operations.namespaces import Namespaces
from zae_limiter.stores.dynamodb.store import DynamoSpace
from zae_limiter.stores.limit_statuses import names_known
from zae_limiter.stores.operator_changes import Reset
from zae_limiter.stores.protocol import Denial, Draw, EntityChange, Grant, Leg, Scope


@dataclass(frozen=True, slots=True)
class Habits:
    """What clients do, and how often. Times are in milliseconds, the others are probabilities."""

    tree: tuple[int, ...] = (1,)
    """How many entities each level has, the roots first; each is a child of one of the level above."""
    resources: int = 1
    idle: int = 60
    """The longest pause between two things a task does."""
    hold: int = 60
    gap: float = 0.0
    """How often a pause is long enough for buckets to expire."""
    settles: float = 0.5
    """How often a lease owes something at its end."""
    more: float = 0.15
    """How often a lease takes more while it is held."""
    overrides: float = 0.0
    """How often a call brings its own limits."""
    changes: tuple[str, ...] = ()
    """What setters change."""
    calendars: float = 0.0
    """How many of the limits that are drawn have a calendar."""
    watching: float = 0.0
    """How many of the limits that are drawn only watch."""
    limits: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    """The limits of levels at the beginning; the others are drawn."""
    totals: float = 0.0
    """How many entities have a total over all resources at the beginning."""
    any_known_name: bool = False
    """Calls name limits of every level consulted, and of ancestors; some entities have no limits of their own."""


class Change(NamedTuple):
    """Something a setter does: the plan, the errors others may cause, and what is to be noted when it is done."""

    kind: str
    what: str
    plan: Plan[Any]
    expected: tuple[type[Exception], ...] = ()
    done: Callable[[], None] = lambda: None
    propagates: bool = True
    """Whether all who come later obey it, and not only those whose cache is older."""


NAMES = ("rps", "tpm", "day")
REGISTERED = ("_/SYSTEM#", "#NAMESPACE#default")
LARGEST = {"rps": 3, "tpm": 120, "day": 2}


NO_KINDS = Habits()
"""Even limits that refuse."""


def some_limit(rng: random.Random, name: str, calendars: float = 0.0) -> Limit:
    """A limit of that name: some are fast, some are slow, some have a burst of their own, some a calendar."""
    if calendars and rng.random() < calendars:
        amount = rng.choice((3, 10, 40, 300))
        return Limit.calendar(name, amount, rng.choice(("3sec", "7sec")), rng.choice((None, 2 * amount, amount + 5)))
    if name == "rps":
        rate = rng.randint(1, 30)
        return Limit.per_second(name, rate, burst=rng.choice((None, None, rate * 2, max(1, rate // 2))))
    if name == "tpm":
        rate = rng.choice((60, 100, 1_000, 7_000))
        return Limit.per_minute(name, rate, burst=rng.choice((None, 50, 200)))
    return Limit.per_day(name, rng.choice((1, 50, 50, 1_000)), burst=rng.choice((None, 3, 10)))


def some_limits(rng: random.Random, kinds: Habits = NO_KINDS) -> tuple[Limit, ...]:
    """One to three limits, of these kinds."""
    names = rng.sample(NAMES, rng.randint(1, len(NAMES)))
    limits = (some_limit(rng, name, kinds.calendars) for name in names)
    if not kinds.watching:
        return tuple(limits)
    return tuple(replace(limit, enforce=rng.random() >= kinds.watching) for limit in limits)


class World:
    """Who there is, what holds, and what they do."""

    def __init__(
        self, fleet: Fleet, habits: Habits, *, calm: bool, lone: bool = False, answered: bool = False
    ) -> None:
        """``calm``: nothing goes wrong, so no client may be unlucky. ``lone``: there is no other.

        ``answered``: every call is, so that load and contention are all there can be.
        """
        self.fleet = fleet
        self.habits = habits
        self.calm = calm
        self.lone = lone
        self.answered = answered
        self.limits_vary = bool(habits.changes)
        self.namespace_varies = "namespace" in habits.changes
        self._closed: tuple[Any, int, int] | None = None
        self.resources = [f"r{number}" for number in range(habits.resources)]
        self.entities: list[str] = []
        self.totals: set[str] = set()
        """Who had a total at the beginning."""
        self.parents: dict[str, str | None] = {}
        self._made = 0
        self._build()

    def _build(self) -> None:
        fleet, rng = self.fleet, self.fleet.rng
        space = fleet.client().space
        limits = self.habits.limits.get("system") or some_limits(rng, self.habits)
        fleet.at_once(space.set_config(Scope(), limits, None, None, False, fleet.now))
        above: list[str] = []
        for level, count in enumerate(self.habits.tree):
            here = [f"e{level}{number}" for number in range(count)]
            for entity in here:
                parent = rng.choice(above) if above else None
                if len(self.habits.tree) > 1:
                    made = Entity(entity, parent_id=parent, cascade=parent is not None)
                    fleet.at_once(space.create_entity(made, None, fleet.now))
                own = self.habits.limits.get(f"level{level}") or ()
                if not own and rng.random() < 0.5:
                    own = some_limits(rng, self.habits)
                if own:
                    scope = Scope(entity, rng.choice((*self.resources, "_default_")))
                    fleet.at_once(space.set_config(scope, own, None, None, False, fleet.now))
                if self.habits.totals and rng.random() < self.habits.totals:
                    scope = Scope(entity, "*")
                    fleet.at_once(space.set_config(scope, some_limits(rng), None, None, False, fleet.now))
                    self.totals.add(entity)
                self._add(entity, parent)
            above = here

    def _add(self, entity: str, parent: str | None) -> None:
        self.entities.append(entity)
        self.move(entity, parent)

    def move(self, entity: str, parent: str | None) -> None:
        """Another parent, from now on."""
        self.parents[entity] = parent

    def may_take_from(self, entity: str, resource: str) -> list[tuple[str, str]]:
        """The buckets that a draw may touch, in order: of each entity its own, and its total."""
        owners = self.entities if self.limits_vary else self._chain(entity)
        places = []
        for owner in owners:
            places.append((owner, resource))
            if owner in self.totals or "total" in self.habits.changes:
                places.append((owner, "*"))
        return places

    def _chain(self, entity: str) -> list[str]:
        """An entity and its ancestors, as far as this is known."""
        chain = []
        at: str | None = entity
        while at is not None and at not in chain:  # those who move at once may make a circle of what is known
            chain.append(at)
            at = self.parents.get(at)
        return chain

    # What callers do

    def idle_ms(self, rng: random.Random) -> int:
        """A pause between two things."""
        if self.habits.gap and rng.random() < self.habits.gap:
            return rng.randint(5_000, 60_000)
        return int(rng.random() * self.habits.idle)

    def hold_ms(self, rng: random.Random) -> int:
        """How long a lease is held."""
        if self.habits.gap and rng.random() < self.habits.gap / 4:
            return rng.randint(5_000, 40_000)
        return int(rng.random() * self.habits.hold)

    def draw(self, rng: random.Random) -> Draw:
        """What a caller wants."""
        entity = rng.choice(self.entities)
        resource = rng.choice(self.resources)
        limits = None
        if self.habits.overrides and rng.random() < self.habits.overrides:
            limits = some_limits(rng, self.habits)
        names = self._names(entity, resource) if limits is None else [limit.name for limit in limits]
        if self.habits.any_known_name:
            names = sorted({*names, *self._known_names(entity, resource)})
        wanted = {name: rng.randint(0, LARGEST.get(name, 3)) for name in names if rng.random() < 0.8}
        if not any(wanted.values()):
            wanted[names[0]] = 1
        return Draw(entity, resource, wanted, limits)

    def _names(self, entity: str, resource: str) -> list[str]:
        """The limits that hold, as the table says."""
        return next(filter(None, self._names_by_level(entity, resource)), ["rps"])

    def _known_names(self, entity: str, resource: str) -> set[str]:
        """The names that any level knows for an entity or one of its ancestors, as the table says."""
        chain = self._chain(entity)
        return {name for one in chain for names in self._names_by_level(one, resource) for name in names}

    def _names_by_level(self, entity: str, resource: str) -> list[list[str]]:
        """The limits of every level, as the table says."""
        ns = self.ns
        own = f"{ns}/ENTITY#{entity}"
        places = (
            (own, f"#CONFIG#{resource}"),
            (own, "#CONFIG#_default_"),
            (f"{ns}/RESOURCE#{resource}", "#CONFIG"),
            (f"{ns}/SYSTEM#", "#CONFIG"),
            *([(own, "#CONFIG#*")] if self.habits.any_known_name else []),
        )
        items = (self.fleet.items.get(place) for place in places)
        return [item["order"]["S"].split(",") if item is not None and item["order"]["S"] else [] for item in items]

    @property
    def ns(self) -> str:
        """The id of the namespace."""
        return self.fleet.items[REGISTERED]["ns"]["S"]  # type: ignore[no-any-return]

    def place_of(self, owner: tuple[str, str]) -> tuple[str, str]:
        """Where a bucket is."""
        return f"{self.ns}/BUCKET#{owner[0]}#{owner[1]}#0", "#STATE"

    def check_route(self, draw: Draw, grant: Grant) -> None:
        """A grant takes from the entity and from every ancestor that has limits, in order."""
        if self.limits_vary:
            return
        expected = self.may_take_from(draw.entity_id, draw.resource)
        found = [leg.place for leg in grant.legs]
        if found != expected:
            raise Violation(NOTICE, None, f"{draw} took from {found} instead of {expected}")

    def check_wait(self, draw: Draw, denial: Denial, now: int) -> None:
        """Without others, a denial names the very millisecond at which the same draw fits."""
        waits: list[int | None] = []
        for owner in self.may_take_from(draw.entity_id, draw.resource):
            oracle = self.fleet.oracle
            places = oracle.families.places(self.place_of(owner))
            references = [oracle.references[place] for place in places]
            if not references:
                return
            for name, terms in references[0].terms.items():
                if terms.watches:
                    continue
                due = due_of_all(references, name, draw.wanted.get(name, 0) * 1000, now)
                if due is None or due > now:
                    waits.append(None if due is None else due - now)
        expected = None if None in waits else max((wait for wait in waits if wait is not None), default=None)
        if denial.wait_ms != expected:
            raise Violation(WAIT, None, f"{draw} was told to wait {denial.wait_ms} ms at {now}, not {expected}")

    def check_refused(self, draw: Draw, grant: Grant, now: int) -> None:
        """Without others, a limit that would have refused does not hold what was asked for."""
        oracle = self.fleet.oracle
        for leg in grant.legs:
            places = oracle.families.places(self.place_of(leg.place))
            for name in leg.refused:
                level = max(oracle.references[place].level(name, now) for place in places)
                if level >= draw.wanted.get(name, 0) * 1000:
                    raise Violation(WATCHED, places[0], f"{draw} would have been refused at {level} of {name}")

    def counted(self, legs: Sequence[Leg]) -> dict[tuple[str, str], Mapping[str, int]]:
        """What every shard of these buckets has counted, where there is no other client."""
        if not self.lone:
            return {}
        places = [
            place
            for leg in legs
            for place in self.fleet.oracle.families.places(self.place_of((leg.entity_id, leg.resource)))
        ]
        return {
            place: {name: held.tc for name, held in read_bucket(self.fleet.items[place]).limits.items()}
            for place in places
        }

    def check_settled(
        self, legs: Sequence[Leg], before: Mapping[tuple[str, str], Mapping[str, int]], began: int
    ) -> None:
        """Only the shards that paid have settled, unless those had no room for it, or did not hold it."""
        after = self.counted(legs)
        for leg in legs:
            payers = {shard for shard, _ in leg.paid} or {0}
            here = {place: shard_of(place) for place in before if owner_of(place) == (leg.entity_id, leg.resource)}
            for place, shard in here.items():
                for name, count in after[place].items():
                    if shard not in payers and count > before[place].get(name, 0):
                        self._check_drained(place, [other for other in here if here[other] in payers], name, began)
                    if shard not in payers and count < before[place].get(name, 0):
                        self._check_full(place, [other for other in here if here[other] in payers], name)

    def _check_drained(self, place: tuple[str, str], payers: Sequence[tuple[str, str]], name: str, began: int) -> None:
        """One of those that paid did not hold its part. What accrued since, while the calls took their time, is no
        reason to have spared them."""
        references = [self.fleet.oracle.references[payer] for payer in payers]
        if all(2 * reference.level(name, began) > reference.terms[name].bx for reference in references):
            raise Violation(PAID, place, f"{name} was taken here, although those who paid hold it")

    def _check_full(self, place: tuple[str, str], payers: Sequence[tuple[str, str]], name: str) -> None:
        references = [self.fleet.oracle.references[payer] for payer in payers]
        if all(reference.level(name, self.fleet.now) < reference.terms[name].bx for reference in references):
            raise Violation(PAID, place, f"{name} came back here, although those who paid have room")

    def more(self, rng: random.Random, draw: Draw, grant: Grant) -> Draw | None:
        """What a lease takes besides, now and then, where it took first."""
        if rng.random() >= self.habits.more:
            return None
        name = rng.choice(self._names_of(grant))
        return draw._replace(wanted={name: rng.randint(1, LARGEST.get(name, 3))}, legs=grant.legs)

    def owed(self, rng: random.Random, grant: Grant, ledger: Ledger) -> Mapping[str, int]:
        """What a lease owes at its end: nothing, all of it back, or a correction."""
        if rng.random() >= self.habits.settles:
            return {}
        if rng.random() < 0.4:
            return ledger.owed_on_failure()
        deltas = {}
        for name in self._names_of(grant):
            if rng.random() < 0.6:
                deltas[name] = rng.randint(-ledger.consumed().get(name, 0), LARGEST.get(name, 3))
        ledger.adjust(deltas, 0)
        return ledger.owed()

    def _names_of(self, grant: Grant) -> list[str]:
        """The limits that a lease may name."""
        if self.habits.any_known_name:
            return sorted(names_known(grant.legs))
        return [limit.name for limit in grant.legs[0].limits]

    # What setters do

    def change(self, rng: random.Random, space: DynamoSpace, now: int) -> Change:
        """Something to change."""
        kind = rng.choice(self.habits.changes)
        if kind == "namespace":
            return self._change_of_namespace(space, now)
        entity = rng.choice(self.entities)
        resource = rng.choice(self.resources)
        scopes = {
            "entity": Scope(entity, resource),
            "default": Scope(entity, "_default_"),
            "total": Scope(entity, "*"),
            "resource": Scope(None, resource),
            "system": Scope(),
        }
        if kind in scopes:
            scope = scopes[kind]
            told = rng.random() < 0.8
            if (kind != "system" or self.habits.any_known_name) and rng.random() < 0.3:
                plan = space.delete_config(scope, None, told, now)
                return Change("delete", f"delete {scope}", plan, propagates=told)
            plan = space.set_config(scope, some_limits(rng, self.habits), None, None, told, now)
            return Change("set", f"set {scope}", plan, propagates=told)
        if kind == "reset":
            reset = Reset(entity, rng.choice((None, resource)))
            return Change("reset", f"reset {entity}", space.reset(reset, now))
        if kind == "parent":
            return self._reparent(rng, space, entity, now)
        if kind == "delete":
            plan = space.delete_entity(entity, None, now)
            return Change("delete", f"delete {entity}", plan, (EntityNotFoundError, ValidationError))
        self._made += 1
        made = Entity(f"n{self._made}", parent_id=rng.choice((None, entity)), cascade=True)
        plan = space.create_entity(made, None, now)
        done = partial(self._add, made.id, made.parent_id)
        return Change("create", f"create {made.id}", plan, (EntityNotFoundError,), done)

    def _change_of_namespace(self, space: DynamoSpace, now: int) -> Change:
        """Delete the namespace, or bring it back."""
        registry = Namespaces(space.namespace.client)
        if "deleted_at" in self.fleet.items[REGISTERED]:
            return Change("recover", "recover", registry.recover_namespace("default", None, now))
        plan = registry.delete_namespace("default", None, now)
        return Change("fence", "delete the namespace", plan, done=partial(self._note_closed, self.fleet.now))

    def _note_closed(self, asked_at: int) -> None:
        self._closed = (self.fleet.items[REGISTERED], asked_at, self.fleet.now)

    def check_open(self, draw: Draw, grant: Grant, started: int) -> None:
        """Nothing is granted in a namespace that was deleted before and is deleted still, up to index lag."""
        if self._closed is None:
            return
        record, asked_at, closed_at = self._closed
        if "deleted_at" not in record or record is not self.fleet.items[REGISTERED] or started <= closed_at:
            return
        oracle = self.fleet.oracle
        for leg in grant.legs:
            place = self.place_of((leg.entity_id, leg.resource))
            born_at = oracle.born_at(place)
            if born_at is not None and born_at + oracle.index_lag_ms <= asked_at:
                raise Violation(NOTICE, place, f"{draw} was granted in a namespace that was deleted at {closed_at}")

    def recover_namespace(self) -> None:
        """Let the namespace be used again, if it is deleted."""
        if self.namespace_varies:
            registry = Namespaces(self.fleet.client().space.namespace.client)
            self.fleet.at_once(registry.recover_namespace("default", None, self.fleet.now))

    def _reparent(self, rng: random.Random, space: DynamoSpace, entity: str, now: int) -> Change:
        parent = rng.choice((None, *(other for other in self.entities if other != entity)))
        change = EntityChange({"parent_id": parent, "cascade": rng.random() < 0.8})
        plan = space.update_entity(entity, change, None, now)
        what = f"move {entity} under {parent}"
        expected = (EntityNotFoundError, ValidationError, EntityExistsError)
        return Change("move", what, plan, expected, partial(self.move, entity, parent))
