"""One run of one profile with one seed: judged at every step and, when nothing moves any more, as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from simulation.afterwards import everything_is_over
from simulation.clients import Client
from simulation.fleet import Fleet
from simulation.profiles import PROFILES, Profile
from simulation.trace import FailedSchedule
from simulation.violations import Violation, shard_of
from simulation.workload import Keeper, Setter, Worker
from simulation.world import World


@dataclass(slots=True)
class Summary:
    """What happened in a number of runs."""

    schedules: int = 0
    steps: int = 0
    granted: int = 0
    denied: int = 0
    unavailable: int = 0
    excused: int = 0
    unresolved: int = 0
    splits: int = 0
    split: int = 0
    """In how many of them a bucket was split."""
    swept: int = 0
    """Shards that were removed because their bucket was idle."""
    joint_writes: int = 0
    joined: int = 0
    """In how many of them one write was for several callers."""
    calls: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)


class Schedule:
    """One run."""

    def __init__(self, profile: Profile, seed: int, *, all_told: bool = True) -> None:
        self.profile = profile
        self.all_told = all_told
        self.seed = seed
        self.fleet = Fleet(
            seed,
            profile.faults,
            deadline_ms=profile.deadline_ms,
            ttl_margin_s=profile.ttl_margin_s,
            wcu=profile.wcu,
        )
        lone = profile.calm and profile.clients * profile.tasks == 1 and not profile.setters
        self.world = World(self.fleet, profile.habits, calm=profile.calm, lone=lone, answered=profile.answered)
        self.workers: list[Worker] = []
        self._at_work: dict[Client, list[Worker | Setter | Keeper]] = {}
        self.fleet.replace = self._replace
        for _ in range(profile.clients):
            client = self._client()
            self._employ(client, [Worker(self.world, client, profile.rounds) for _ in range(profile.tasks)])
        for _ in range(profile.setters):
            client = self._client()
            self._employ(client, [Setter(self.world, client, profile.changes)])
        for _ in range(profile.keepers):
            client = self._client()
            self._employ(client, [Keeper(self.world, client, profile.rounds)])
        faults = profile.faults
        self._every(faults.expire_every, self.fleet.expire)
        self._every(faults.delete_every, self._delete_a_bucket)
        self._every(faults.step_every, self._step_a_clock)
        self._every(faults.jump_every, self._set_a_clock)

    def run(self, summary: Summary | None = None) -> Summary:
        """To the end. Raises :class:`FailedSchedule` at the first thing that is wrong."""
        fleet = self.fleet
        try:
            fleet.run()
            fleet.books.compare(fleet.oracle, self.world.place_of, all_told=self.all_told)
            self._check_call_counts()
            everything_is_over(fleet, self.world)
        except Exception as failure:
            story = ""
            if isinstance(failure, Violation) and failure.place is not None:
                story = fleet.trace.told(failure.place)
            raise FailedSchedule(self.profile.name, self.seed, failure, story) from failure
        return self._sum_up(summary or Summary())

    def _check_call_counts(self) -> None:
        """Every client is closed, and with that has counted its denials."""
        fleet, faults = self.fleet, self.profile.faults
        in_doubt = faults.loses_answers or faults.interrupted or fleet.books.doubts or fleet.oracle.incomplete
        if not self.world.namespace_varies:
            for client in fleet.clients:
                fleet.at_once(client.space.write_denials())
        # Denials by a bucket that expires before they are written go with it.
        all_written = not (self.world.namespace_varies or faults.hours or faults.given_hours or faults.expire_every)
        fleet.call_counts.compare(exact=not in_doubt, all_written=all_written)

    def _client(self) -> Client:
        return self.fleet.client(config_ttl_ms=self.profile.config_ttl_ms)

    def _employ(self, client: Client, workers: Iterable[Worker | Setter | Keeper]) -> None:
        for worker in workers:
            self._at_work.setdefault(client, []).append(worker)
            if isinstance(worker, Worker):
                self.workers.append(worker)
            client.start(worker.life, worker.died)

    def _replace(self, client: Client) -> None:
        """A client has crashed: another one does the rest of its work, with nothing in its memory."""
        successor = self._client()
        left = [type(worker)(self.world, successor, worker.rounds) for worker in self._at_work.pop(client)]
        self.fleet.after(50_000, self._employ, successor, left)

    # What happens besides

    def _every(self, milliseconds: int, act: object) -> None:
        if milliseconds:
            self.fleet.after(self._about(milliseconds), self._again, milliseconds, act)

    def _again(self, milliseconds: int, act: object) -> None:
        assert callable(act)
        act()
        if self.fleet.is_busy:
            self.fleet.after(self._about(milliseconds), self._again, milliseconds, act)

    def _about(self, milliseconds: int) -> int:
        return int(milliseconds * 1000 * (0.5 + self.fleet.rng.random()))

    def _delete_a_bucket(self) -> None:
        """All of one, or one of its shards; never the first alone: no operator does that."""
        fleet = self.fleet
        places = [place for place in fleet.items if place[1] == "#STATE"]
        if places:
            chosen = fleet.rng.choice(places)
            whole = shard_of(chosen) == 0 or fleet.rng.random() < 0.5
            for place in fleet.oracle.families.places(chosen) if whole else [chosen]:
                fleet.remove(place)

    def _step_a_clock(self) -> None:
        skew = self.profile.faults.skew
        self.fleet.rng.choice(self.fleet.clients).skew = self.fleet.rng.randint(-skew, skew)

    def _set_a_clock(self) -> None:
        self.fleet.rng.choice(self.fleet.clients).set_clock()

    def _sum_up(self, summary: Summary) -> Summary:
        fleet = self.fleet
        summary.schedules += 1
        summary.steps += fleet.steps
        for worker in self.workers:
            summary.granted += worker.granted
            summary.denied += worker.denied
            summary.unavailable += worker.unavailable
        splits, joint_writes = fleet.oracle.families.splits, fleet.oracle.joined
        summary.splits += splits
        summary.split += splits > 0
        summary.joint_writes += joint_writes
        summary.joined += joint_writes > 0
        summary.swept += fleet.oracle.swept
        summary.excused += fleet.oracle.excused
        summary.unresolved += sum(client.space.unresolved for client in fleet.clients)
        summary.calls += fleet.network.calls
        summary.fates += fleet.network.fates
        return summary


def run_schedules(profile: str, seeds: Iterable[int]) -> Summary:
    """Many runs of one profile."""
    summary = Summary()
    for seed in seeds:
        Schedule(PROFILES[profile], seed).run(summary)
    return summary
