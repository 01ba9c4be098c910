"""Kinds of runs. Each is a few clients for a few rounds; thousands of seeds of each make the test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from simulation.faults import NONE, Faults
from simulation.world import Habits
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.write_load import PARTITION_WCU


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of run."""

    name: str
    habits: Habits = field(default_factory=Habits)
    faults: Faults = NONE
    clients: int = 3
    tasks: int = 1
    rounds: int = 6
    setters: int = 0
    keepers: int = 0
    """Aggregators, which split what they think is busy, and sweep."""
    changes: int = 3
    config_ttl_ms: int = 60_000
    deadline_ms: int = 2_000
    ttl_margin_s: int = 15
    wcu: int = PARTITION_WCU
    hurried: bool = False
    """The deadline is too short for what so many do at one bucket."""

    @property
    def calm(self) -> bool:
        """Whether nothing can go wrong, so that everything must go well."""
        faults = self.faults
        return not (
            self.hurried
            or faults.loses_answers
            or faults.throttled
            or faults.conflict
            or faults.interrupted
            or faults.partition_wcu
            or faults.unprocessed
        )

    @property
    def answered(self) -> bool:
        """Whether every call is answered, if only by a refusal: then no caller may find DynamoDB unavailable."""
        return not (self.faults.loses_answers or self.faults.interrupted)


TWO_SPEEDS = (Limit.per_second("rps", 1), Limit.per_day("day", 50))
DEEP = (Limit.per_second("rps", 5, burst=400),)
LEVELS = ("entity", "default", "resource", "system")
TREE = (1, 2, 3)
LOSSES = Faults(lost=0.02, unanswered=0.03, late=0.04, slow=0.01)
EVERYTHING = Faults(
    lost=0.01,
    unanswered=0.015,
    late=0.02,
    slow=0.005,
    throttled=0.01,
    conflict=0.01,
    unprocessed=0.05,
    short_page=0.1,
    interrupted=0.01,
    crash=0.005,
    vanish=0.001,
    delete_every=400,
    expire_every=500,
    skew=2_000,
    step_every=300,
)

_WIDE = (Limit.per_second("rps", 60), Limit.per_minute("tpm", 7_000, burst=500))
WIDE = {"system": _WIDE, "level0": _WIDE}

_TIGHT = (Limit.per_minute("tpm", 1_000, burst=200),)
TIGHT = {"system": _TIGHT, "level0": _TIGHT}

_SMALL = (Limit.per_second("rps", 24),)
SMALL = {"system": _SMALL, "level0": _SMALL}
"""Shards have a token or two: most draws are paid by several."""

PROFILES = {
    profile.name: profile
    for profile in (
        Profile("lone", clients=1, rounds=20),
        Profile("lone up a tree", Habits(tree=TREE), clients=1, rounds=20),
        Profile("speeds", Habits(limits={"system": TWO_SPEEDS, "level0": TWO_SPEEDS}), clients=4, rounds=8),
        Profile("contention", Habits(idle=10, hold=15), clients=8, tasks=2, rounds=4),
        Profile("cascade", Habits(tree=TREE, idle=40), clients=5, rounds=5),
        Profile("overrides", Habits(tree=(1, 2), overrides=0.3), clients=4, rounds=5),
        Profile("changes", Habits(tree=(1, 2), resources=2, changes=LEVELS, overrides=0.05), clients=4, setters=2),
        Profile(
            "families",
            Habits(tree=TREE, changes=("parent", "parent", "create", "delete", "entity", "reset"), overrides=0.05),
            clients=4,
            setters=2,
        ),
        Profile(
            "names",
            Habits(tree=TREE, resources=2, changes=(*LEVELS, "parent", "reset"), overrides=0.05, any_known_name=True),
            replace(LOSSES, crash=0.005, conflict=0.01, interrupted=0.01),
            clients=4,
            rounds=6,
            setters=2,
            config_ttl_ms=5_000,
        ),
        Profile("lone with totals", Habits(tree=TREE, resources=2, totals=0.6), clients=1, rounds=20),
        Profile(
            "totals",
            Habits(
                tree=TREE,
                resources=3,
                idle=20,
                hold=20,
                totals=0.5,
                changes=("total", "total", *LEVELS, "parent", "reset", "delete", "create"),
                overrides=0.05,
                any_known_name=True,
            ),
            replace(LOSSES, crash=0.005, conflict=0.01, interrupted=0.01, expire_every=700),
            clients=4,
            rounds=6,
            setters=2,
            config_ttl_ms=5_000,
        ),
        Profile(
            "totals over shards",
            Habits(resources=3, idle=10, hold=10, totals=1.0, limits=WIDE, changes=("total", "entity")),
            Faults(late=0.02, lost=0.01, conflict=0.01),
            clients=3,
            tasks=3,
            rounds=8,
            setters=1,
            config_ttl_ms=5_000,
            wcu=10,
        ),
        Profile("losses", Habits(idle=20, hold=20), LOSSES, clients=6, rounds=6),
        Profile(
            "storm",
            Habits(idle=10, hold=10, settles=0.9, more=0.15, limits={"system": DEEP, "level0": DEEP}),
            Faults(lost=0.04, unanswered=0.06, late=0.12),
            clients=8,
            rounds=10,
        ),
        Profile("losses up a tree", Habits(tree=TREE, idle=20, hold=20), LOSSES, clients=5, rounds=6),
        Profile(
            "load",
            Habits(tree=(1, 3), idle=10),
            Faults(throttled=0.05, conflict=0.05, unprocessed=0.1, partition_wcu=60),
            clients=6,
            rounds=5,
        ),
        Profile(
            "overload",
            Habits(tree=(1, 2), idle=10),
            Faults(throttled=0.5, conflict=0.2, unprocessed=0.5, partition_wcu=30),
            clients=4,
            tasks=2,
            rounds=4,
            deadline_ms=300,
            wcu=20,
        ),
        Profile(
            "crush",
            Habits(idle=5, hold=5, limits=SMALL),
            clients=16,
            rounds=20,
            deadline_ms=200,
            hurried=True,
            wcu=5,
        ),
        Profile("interrupts", Habits(tree=TREE, idle=20), Faults(interrupted=0.1, conflict=0.02), clients=4, rounds=8),
        Profile("crashes", Habits(tree=TREE, idle=20), Faults(crash=0.03), clients=5, rounds=6),
        Profile("expiry", Habits(tree=(1, 2), gap=0.5), Faults(expire_every=700, skew=1_000), clients=3, rounds=8),
        Profile("skew", Habits(tree=(1, 2)), Faults(skew=2_000, step_every=200), clients=6, rounds=6),
        Profile(
            "hours",
            Habits(tree=(1, 2), changes=(*LEVELS, "parent", "reset"), gap=0.05),
            Faults(hours=48, jump_every=100, expire_every=700, unanswered=0.01, crash=0.005),
            clients=4,
            rounds=6,
            setters=1,
        ),
        Profile(
            "given clocks",
            Habits(tree=(1, 2), overrides=0.05, gap=0.05),
            Faults(given_hours=48, jump_every=100),
            clients=6,
            rounds=6,
        ),
        Profile(
            "given clocks over shards",
            Habits(idle=10, hold=15, limits=WIDE),
            Faults(given_hours=48, jump_every=150),
            clients=4,
            tasks=2,
            rounds=12,
            wcu=20,
        ),
        Profile("lone over shards", Habits(idle=30, hold=10, settles=0.7), clients=1, rounds=60, wcu=10),
        Profile("patient", Habits(idle=500, settles=0.2, limits=TIGHT), clients=1, rounds=50, wcu=10),
        Profile(
            "overrides over shards",
            Habits(idle=10, hold=10, overrides=0.4, limits=WIDE),
            clients=3,
            rounds=14,
            wcu=10,
        ),
        Profile("spread", Habits(idle=10, hold=15, limits=WIDE), clients=4, tasks=2, rounds=16, wcu=20),
        Profile(
            "shards",
            Habits(
                tree=(1, 2),
                idle=10,
                hold=10,
                gap=0.01,
                overrides=0.02,
                changes=(*LEVELS, "entity", "parent", "create", "delete", "reset"),
            ),
            replace(EVERYTHING, partition_wcu=80, throttled=0.01, delete_every=700),
            clients=3,
            tasks=4,
            rounds=8,
            setters=1,
            keepers=1,
            config_ttl_ms=5_000,
            wcu=10,
        ),
        Profile(
            "shards up a tree",
            Habits(
                tree=TREE,
                idle=15,
                hold=15,
                gap=0.01,
                overrides=0.02,
                changes=(*LEVELS, "entity", "parent", "create", "delete", "reset"),
            ),
            replace(EVERYTHING, vanish=0, partition_wcu=60, throttled=0.01, delete_every=700),
            clients=5,
            tasks=2,
            rounds=10,
            setters=1,
            keepers=1,
            config_ttl_ms=5_000,
            wcu=10,
        ),
        Profile(
            "operators",
            Habits(idle=10, hold=10, changes=("reset", "reset", "delete", "default"), limits=WIDE),
            Faults(
                lost=0.01,
                unanswered=0.03,
                late=0.12,
                slow=0.01,
                conflict=0.01,
                unprocessed=0.1,
                short_page=0.1,
                twice=0.1,
                index_lag=200,
            ),
            clients=3,
            tasks=4,
            rounds=12,
            setters=2,
            changes=8,
            config_ttl_ms=5_000,
            wcu=10,
        ),
        Profile(
            "namespaces",
            Habits(tree=(1, 2), idle=20, hold=20, changes=("namespace", "namespace", "namespace", "entity", "reset")),
            Faults(lost=0.01, unanswered=0.02, late=0.05, conflict=0.01, short_page=0.1, twice=0.1, index_lag=100),
            clients=4,
            tasks=2,
            rounds=8,
            setters=2,
            changes=8,
            config_ttl_ms=2_000,
        ),
        Profile(
            "sweeps",
            Habits(idle=10, hold=10, gap=0.1, limits=WIDE),
            Faults(skew=1_000, late=0.02, lost=0.01, conflict=0.02),
            clients=3,
            rounds=24,
            keepers=2,
            ttl_margin_s=5,
            wcu=5,
        ),
        Profile(
            "calendars",
            Habits(tree=TREE, calendars=0.7, gap=0.05, overrides=0.05, changes=(*LEVELS, "parent", "reset")),
            Faults(skew=1_500, expire_every=700),
            clients=4,
            rounds=8,
            setters=1,
        ),
        Profile(
            "calendars and losses",
            Habits(tree=(1, 2), calendars=0.7, idle=30, gap=0.02, overrides=0.05, changes=(*LEVELS, "reset")),
            replace(EVERYTHING, hours=0, vanish=0),
            clients=4,
            tasks=3,
            rounds=6,
            setters=1,
            config_ttl_ms=5_000,
        ),
        Profile(
            "calendars over shards",
            Habits(idle=10, hold=10, calendars=0.8, gap=0.02, overrides=0.02, changes=("entity", "reset")),
            replace(LOSSES, skew=500),
            clients=4,
            tasks=3,
            rounds=12,
            setters=1,
            wcu=10,
        ),
        Profile("lone watching", Habits(watching=0.5, tree=(1, 1), calendars=0.3, gap=0.05), clients=1, rounds=20),
        Profile(
            "watching",
            Habits(tree=TREE, watching=0.5, calendars=0.3, gap=0.02, overrides=0.05, changes=(*LEVELS, "reset")),
            Faults(skew=1_000),
            clients=4,
            tasks=2,
            rounds=8,
            setters=1,
        ),
        Profile(
            "watching and losses",
            Habits(tree=(1, 2), watching=0.5, calendars=0.3, idle=20, hold=20, changes=(*LEVELS, "reset")),
            replace(EVERYTHING, hours=0, vanish=0),
            clients=4,
            tasks=3,
            rounds=6,
            setters=1,
            config_ttl_ms=5_000,
        ),
        Profile(
            "watching over shards",
            Habits(idle=10, hold=10, watching=0.5, calendars=0.3, gap=0.02, changes=("entity", "reset")),
            replace(LOSSES, skew=500),
            clients=4,
            tasks=3,
            rounds=12,
            setters=1,
            wcu=10,
        ),
        Profile("joined", Habits(idle=5, hold=10), clients=2, tasks=8, rounds=4),
        Profile(
            "crowded",
            Habits(tree=(1, 3), idle=5, hold=10, settles=0.7),
            Faults(
                lost=0.01,
                unanswered=0.02,
                late=0.02,
                slow=0.01,
                interrupted=0.05,
                crash=0.003,
                conflict=0.01,
                vanish=0.003,
            ),
            clients=2,
            tasks=8,
            rounds=5,
            deadline_ms=400,
        ),
        Profile(
            "everything",
            Habits(
                tree=TREE,
                resources=2,
                idle=15,
                hold=25,
                gap=0.02,
                overrides=0.05,
                changes=(*LEVELS, "entity", "parent", "create", "delete", "reset"),
            ),
            EVERYTHING,
            clients=3,
            tasks=5,
            rounds=4,
            setters=2,
            keepers=1,
            config_ttl_ms=5_000,
            wcu=20,
        ),
    )
}
