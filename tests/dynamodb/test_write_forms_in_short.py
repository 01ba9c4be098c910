"""What most acquires do is told in short: their write, its JSON, its reply, and that they need no second thought.

Each is held here against the long way, which everything else goes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Limit
from zae_limiter.bucket import Balance
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_in, snapshot_of
from zae_limiter.stores.dynamodb.config_resolver import ResolvedConfig
from zae_limiter.stores.dynamodb.expressions import Update, UpdateParams
from zae_limiter.stores.dynamodb.intents import Intent
from zae_limiter.stores.dynamodb.items import BrokenItem
from zae_limiter.stores.dynamodb.operations import acquire as acquire_module
from zae_limiter.stores.dynamodb.operations.acquire import Acquire
from zae_limiter.stores.dynamodb.requests import Call, MachineTime, ReadMachineTime, Together, UnreadReply
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, encode_item
from zae_limiter.stores.dynamodb.store import DynamoSpace
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.write_forms import plain_draw, plain_settlement, update
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.dynamodb.write_load import WRITE
from zae_limiter.stores.protocol import Denial, Draw, Grant, Leg

START = 1_800_000_000_000
KEY = Key("ns/BUCKET#key#gpt#0", "#STATE")
NAMES = ("rpm", "tpm", "a.b-c_d")

TERMS = st.tuples(st.integers(1, 1000), st.integers(1, 1000), st.sampled_from([1, 60, 86_400]), st.integers(1, 1000))
WRITE_IDS = st.one_of(st.just("-"), st.integers(-5_000, 5_000).map(lambda at: f"{START + at:x}.them"))
TALLIES = st.dictionaries(st.sampled_from(["evc", "c_rpm", "c_tpm", "d_rpm"]), st.integers(1, 10**6), max_size=4)


def around(*edges: int) -> st.SearchStrategy[int]:
    """Numbers at these edges, and anywhere between and beyond them."""
    far = 2 * max(map(abs, edges))
    at_edges = st.sampled_from(edges).flatmap(lambda edge: st.integers(edge - 1, edge + 1))
    return st.one_of(at_edges, st.just(far), st.integers(-far, far)).map(lambda number: max(number, 2 * min(edges)))


@st.composite
def snapshots(draw: st.DrawFn, names: tuple[str, ...] = NAMES, fewest: int = 1) -> BucketSnapshot:
    """An unsplit bucket without a retired limit, as a client may have seen it."""
    rf = START + draw(st.integers(-3_000, 3_000))
    balances = {}
    for name in names[: draw(st.integers(fewest, len(names)))]:
        limit = Limit(name, *draw(TERMS))
        tk = draw(around(-1_000 * limit.burst, 1_000 * limit.burst))
        balances[name] = Balance(limit, rf, tk=tk, tc=draw(st.integers(0, 10**7)))
    return BucketSnapshot(
        "key",
        "gpt",
        rf=rf,
        cv=draw(st.sampled_from(["1.0.0.0.0", "2.1.0.0.3/0.0.1", "~abc.0"])),
        inc=draw(st.sampled_from(["one", "two"])),
        balances=balances,
        ev=draw(st.integers(0, 1000)),
        recent_writers=tuple(draw(WRITE_IDS) for _ in range(4)),
        load_level=draw(st.integers(-3_000_000, 3_000_000)),
        load_burst=1_000_000,
    )


def item_of(snapshot: BucketSnapshot, **others: Any) -> dict[str, Any]:
    """The item that a snapshot is of."""
    attributes: dict[str, Any] = {
        "PK": KEY.pk,
        "SK": KEY.sk,
        "entity_id": snapshot.entity_id,
        "resource": snapshot.resource,
        "rf": snapshot.rf,
        "cv": snapshot.cv,
        "inc": snapshot.inc,
        "ev": snapshot.ev,
        "shard_count": snapshot.shards,
        "cascade": False,
        "ttl": 1,
        "b_wcu_tk": snapshot.load_level,
        "b_wcu_bx": snapshot.load_burst,
    }
    attributes |= {f"w{place}": write_id for place, write_id in enumerate(snapshot.recent_writers)}
    for name, balance in snapshot.balances.items():
        limit = balance.limit
        terms = (limit.capacity, limit.burst, limit.refill_amount, limit.refill_period_seconds)
        attributes |= {
            f"b_{name}_{field}": 1000 * value for field, value in zip(("cp", "bx", "ra", "rp"), terms, strict=True)
        }
        attributes |= {f"b_{name}_tk": balance.tk, f"b_{name}_tc": balance.tc}
    return encode_item(attributes | others)


def told(snapshot: BucketSnapshot) -> tuple[Any, ...]:
    """All that a snapshot says."""
    balances = {
        name: (balance.limit, balance.tk, balance.tc, balance.at_rf, balance.bx, balance.shard, balance.shards)
        for name, balance in snapshot.balances.items()
    }
    return balances, *(getattr(snapshot, slot) for slot in BucketSnapshot.__slots__ if slot != "balances")


# The write


@settings(max_examples=200, deadline=None)
@given(st.data(), snapshots(), st.integers(-4_000, 90_000))
def test_a_plain_draw_is_the_write_that_the_forms_make(
    data: st.DataObject, snapshot: BucketSnapshot, later: int
) -> None:
    taken = {
        name: data.draw(around(0, balance.bx))
        for name, balance in snapshot.balances.items()
        if data.draw(st.booleans())
    }
    taken = {name: amount for name, amount in taken.items() if amount}
    reserved = data.draw(st.booleans())
    needed = {name: amount + (data.draw(st.integers(0, 5_000)) if reserved else 0) for name, amount in taken.items()}
    guesses = {name: data.draw(st.integers(-(10**6), 10**6)) for name in snapshot.balances if data.draw(st.booleans())}
    at: dict[str, Any] = {
        "now": START + later,
        "write_id": "1a2b.c",
        "guesses": guesses,
        "load": WRITE * data.draw(st.integers(1, 4)),
        "age_ms": data.draw(st.sampled_from([None, 0, 10, 999, 1_000])),
        "epoch_s": 1_800_000_000,
        "ttl_margin_s": 3_600,
    }
    tallies = data.draw(TALLIES)
    in_full = update(snapshot, Intent(taken, needed, grants=1, tallies=tallies), **at).params("limits", KEY)
    shape, values = plain_draw(snapshot, taken, needed, tallies=tallies, **at)
    assert dict(UpdateParams(shape, "limits", KEY, values)) == dict(in_full)


@settings(max_examples=300, deadline=None)
@given(st.data(), snapshots(), st.integers(-4_000, 90_000))
def test_a_plain_settlement_is_the_write_that_the_forms_make(
    data: st.DataObject, snapshot: BucketSnapshot, later: int
) -> None:
    deltas = {
        name: data.draw(around(-2 * balance.bx, 0, balance.bx))
        for name, balance in snapshot.balances.items()
        if data.draw(st.booleans())
    }
    if data.draw(st.booleans()):
        deltas = {name: -abs(delta) for name, delta in deltas.items()}
    grants = data.draw(st.sampled_from([-1, 0, 0, 2]))
    snapshot.retired = frozenset(name for name in snapshot.balances if data.draw(st.integers(0, 3)) == 0)
    at: dict[str, Any] = {
        "now": START + later,
        "write_id": "1a2b.c",
        "load": WRITE * data.draw(st.integers(1, 4)),
        "age_ms": data.draw(st.sampled_from([None, 0, 10, 999, 1_000])),
        "epoch_s": 1_800_000_000,
        "ttl_margin_s": 3_600,
    }
    owed = tuple(balance.limit for balance in snapshot.balances.values())
    tallies = data.draw(TALLIES)
    intent = Intent(deltas, grants=grants, owed=owed, tallies=tallies)
    in_full = update(snapshot, intent, **at).params("limits", KEY)
    shape, values = plain_settlement(snapshot, deltas, grants=grants, tallies=tallies, **at)
    assert dict(UpdateParams(shape, "limits", KEY, values)) == dict(in_full)


STRINGS = st.one_of(
    st.text(max_size=8), st.sampled_from(['"', "\\", "%", "%s", "%%d", "é", "\u2028", "\U0001f600", "a/b"])
)


@settings(max_examples=200, deadline=None)
@given(STRINGS, STRINGS, STRINGS, st.integers(), st.booleans(), st.booleans())
def test_a_write_says_in_json_what_it_is_as_a_mapping(
    table: str, attribute: str, text: str, number: int, flag: bool, returns: bool
) -> None:
    write = Update()
    write.demand(attribute, "=", text)
    write.push_write_id(text, text)
    write.demand_not_written(text)
    write.set(f"{attribute}1", number)
    write.set(f"{attribute}2", flag)
    write.add(f"{attribute}3", number)
    write.remove(f"{attribute}4")
    params = write.params(table, Key(text, attribute))
    params.returns_new = returns
    assert json.loads(params.written()) == json.loads(json.dumps(dict(params)))
    assert ("ReturnValues" in params) == returns


# The reply


@settings(max_examples=150, deadline=None)
@given(st.data(), snapshots())
def test_a_bucket_is_found_in_a_text_as_in_what_is_read_from_it(data: st.DataObject, before: BucketSnapshot) -> None:
    after = data.draw(snapshots(tuple(before.balances)))
    others: dict[str, Any] = {"note": data.draw(STRINGS)} if data.draw(st.booleans()) else {}
    for same in data.draw(st.sets(st.sampled_from(["rf", "cv", "inc"]))) | {"rf", "cv"}:
        setattr(after, same, getattr(before, same))
    item = item_of(after, **others)
    for place in data.draw(st.sets(st.sampled_from(sorted(item)), max_size=1)):
        if data.draw(st.booleans()):
            del item[place]
        else:
            item[place] = data.draw(st.sampled_from([{"N": "x"}, {"S": "1"}, {"N": "7"}, {"S": 'a"b'}]))
    items = list(item.items())
    item = dict(data.draw(st.permutations(items)))
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    text = json.dumps({"Attributes": item}, separators=separators, ensure_ascii=data.draw(st.booleans()))
    try:
        expected = told(snapshot_of(json.loads(text)["Attributes"], before))
    except BrokenItem:
        with pytest.raises(BrokenItem):
            snapshot_in(UnreadReply(text), before)
    else:
        assert told(snapshot_in(UnreadReply(text), before)) == expected


def test_a_reply_that_is_no_json_is_no_bucket() -> None:
    with pytest.raises(BrokenItem):
        snapshot_in(UnreadReply('{"Attributes":{"rf"}}'))


# The leg at hand


class Client:
    """One client that remembers what it is told to, and whose draws are stepped through."""

    def __init__(self, *, thinks_twice: bool) -> None:
        self.space = DynamoSpace(
            TableClient("limits", deadline_ms=2_000, write_ids=WriteIds("me")),
            "default",
            corrected=True,
            config_ttl_ms=60_000,
        )
        self.thinks_twice = thinks_twice
        self.warm_legs: list[Any] = []
        """What every look for known buckets came to."""

    def first_call(self, draw: Draw, now: int) -> tuple[Plan[Any], Any]:
        """What a draw asks of DynamoDB first; or what it comes to without asking."""
        plan = self.space.draw(draw, now)
        warm_legs = acquire_module.warm_legs

        def noted(acquire: Acquire) -> Any:
            self.warm_legs.append(() if self.thinks_twice else warm_legs(acquire))
            return self.warm_legs[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(acquire_module, "warm_legs", noted)
            return self._first_call_of(plan)

    def _first_call_of(self, plan: Plan[Any]) -> tuple[Plan[Any], Any]:
        try:
            request = next(plan)
            assert isinstance(request, ReadMachineTime)
            return plan, plan.send(MachineTime(1_000, 1_800_000_000))
        except StopIteration as ended:
            return plan, ended.value
        except Exception as error:
            return plan, repr(error)

    def remembered(self) -> Any:
        cached = self.space.cache.get(bucket_key("ns", "key", "gpt"))
        if cached is None:
            return None
        kept = [getattr(cached, slot) for slot in type(cached).__slots__ if slot not in ("snapshot", "_base")]
        return (
            told(cached.snapshot),
            told(cached._base),
            kept,
            self.space.cache_stats(),
            self.space.batching.queues._queues,
        )


ODDITIES = (
    "plain",
    "sharded",
    "of another version",
    "with a parent",
    "denied a moment ago",
    "throttled",
    "waited for",
    "of limits in the call",
    "of a limit it has not",
    "of more than fits",
    "with no namespace known",
    "with no limits known",
    "with no limits at all",
    "never seen",
)


@st.composite
def worlds(draw: st.DrawFn, odd: str) -> Any:
    """How to make a client remember things, and what is drawn when: plain but for one thing, at most."""
    snapshot = draw(snapshots(("rpm", "tpm")))
    names, key = list(snapshot.balances), bucket_key("ns", "key", "gpt")
    limits = tuple(balance.limit for balance in snapshot.balances.values())
    now = max(START, snapshot.rf) + draw(st.integers(-100, 5_000))
    age, failures = draw(st.sampled_from([0, 50, 500])), draw(st.integers(0, 2))
    wanted = {limit.name: draw(st.integers(0, limit.burst)) for limit in limits if draw(st.booleans())}
    throttles = draw(st.sampled_from([1, 5]))
    if odd == "sharded":
        snapshot.shards = 2
    if odd == "denied a moment ago":
        snapshot.balances["rpm"].tk, wanted["rpm"] = -(10**9), 1
    if odd in ("of a limit it has not", "of more than fits"):
        wanted["other" if odd == "of a limit it has not" else names[0]] = 1_001

    def prepare(client: Client) -> None:
        space = client.space
        if odd != "with no namespace known":
            space.namespace.known_ns = "ns"
        if odd != "with no limits known":
            leg = None if odd == "with no limits at all" else Leg("key", "gpt", limits, "system")
            cv = "3.0.0.0.0" if odd == "of another version" else snapshot.cv
            parent_id = "parent" if odd == "with a parent" else None
            config = ResolvedConfig("key", "gpt", leg, cv, 0, "/0.0.0", parent_id, True, None, 0, key)
            space.resolver.configs.put(("key", "gpt"), config, 900)
            space.resolver.watch.see(None, 900)
        if odd != "never seen":
            cached = space.cache.see(key, snapshot, now - age)
            for _ in range(failures):
                cached.count_refused(now - age)
            if odd == "throttled":
                cached.throttled = throttles
                space.cache.avoid(key, now + 50)
            if odd == "denied a moment ago":
                cached.deny({"rpm": 1_000}, {"rpm": now + 10**6}, now)

    own = (Limit.per_minute("rpm", 2_000),) if odd == "of limits in the call" else None
    reserved = {"key": {names[0]: 3}} if odd == "waited for" else {}
    return prepare, Draw("key", "gpt", wanted, own, reserved), now


@pytest.mark.parametrize("odd", ODDITIES)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_known_bucket_is_written_as_if_everything_had_been_looked_at(odd: str, data: st.DataObject) -> None:
    prepare, draw, now = data.draw(worlds(odd))
    short, full = Client(thinks_twice=False), Client(thinks_twice=True)
    steps = []
    for client in (short, full):
        prepare(client)
        plan, asked = client.first_call(draw, now)
        is_write = isinstance(asked, Call) and asked.operation == "UpdateItem"
        steps.append((plan, asked))
        assert is_write or not isinstance(asked, Call) or asked.operation in ("GetItem", "BatchGetItem")
    assert len(short.warm_legs) == len(full.warm_legs) == 1
    assert odd != "plain" or short.warm_legs != [()], "the two ways are the same"
    (plan, asked), (plan_in_full, asked_in_full) = steps
    assert type(asked) is type(asked_in_full)
    assert asked.__class__ is not Call or (asked.operation, dict(asked.params), asked.give_up_at) == (
        asked_in_full.operation,
        dict(asked_in_full.params),
        asked_in_full.give_up_at,
    )
    if not isinstance(asked, Call) or asked.operation != "UpdateItem":
        assert outcome(asked) == outcome(asked_in_full)
        return
    cached = short.space.cache.get(bucket_key("ns", "key", "gpt"))
    assert cached is not None
    if cached.snapshot.shards > 1:
        return
    after = data.draw(snapshots(tuple(cached.snapshot.balances), fewest=len(cached.snapshot.balances)))
    after.rf, after.cv, after.load_level = cached.snapshot.rf, cached.snapshot.cv, abs(after.load_level)
    reply = {"Attributes": item_of(after)}
    ends = [answered(each, reply, now) for each in (plan, plan_in_full)]
    assert ends[0] == ends[1]
    assert short.remembered() == full.remembered()


PARENTS = (
    "plain",
    "drained",
    "in debt",
    "sharded",
    "of another version",
    "denied a moment ago",
    "throttled",
    "never seen",
    "with no limits known",
    "with no limits at all",
    "its own child",
)


@pytest.mark.parametrize("odd", PARENTS)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_the_legs_of_a_hierarchy_are_written_as_if_everything_had_been_looked_at(
    odd: str, data: st.DataObject
) -> None:
    both = {name: data.draw(snapshots(("rpm", "tpm"), fewest=2)) for name in ("key", "parent")}
    now = max(START, *(snapshot.rf for snapshot in both.values())) + data.draw(st.integers(-100, 5_000))
    for snapshot in both.values():
        snapshot.load_level = abs(snapshot.load_level)
        if odd == "plain":
            snapshot.recent_writers = ("-",) * 4  # so others do not seem to drain it
        for balance in snapshot.balances.values():
            balance.tk = balance.bx if odd == "plain" else max(balance.tk, balance.bx // 2)
    least = min(balance.bx for snapshot in both.values() for balance in snapshot.balances.values())
    wanted = {"rpm": max(least // 4_000, 1), "tpm": data.draw(st.integers(0, 1))}
    above = both["parent"].balances["rpm"]
    if odd in ("drained", "in debt"):
        above.tk = -above.since_rf(now) - (odd == "in debt")
        wanted["rpm"] = 0 if odd == "in debt" else wanted["rpm"]
    if odd == "sharded":
        both["parent"].shards = 2

    def prepare(client: Client) -> None:
        space = client.space
        space.namespace.known_ns = "ns"
        for name, snapshot in both.items():
            key, is_parent = bucket_key("ns", name, "gpt"), name == "parent"
            leg = Leg(name, "gpt", tuple(balance.limit for balance in snapshot.balances.values()), "system")
            parent_id = ("key" if odd == "its own child" else None) if is_parent else "parent"
            resolved = ResolvedConfig(name, "gpt", leg, snapshot.cv, 0, "/0.0.0", parent_id, True, None, 0, key)
            if is_parent and odd == "with no limits at all":
                resolved = resolved._replace(leg=None)
            if is_parent and odd == "of another version":
                resolved = resolved._replace(cv="3.0.0.0.0")
            if not is_parent or odd != "with no limits known":
                space.resolver.configs.put((name, "gpt"), resolved, 900)
                space.resolver.watch.see(None, 900)
            if is_parent and odd == "never seen":
                continue
            cached = space.cache.see(key, snapshot, now - 50)
            if is_parent and odd == "throttled":
                cached.throttled = 5
                space.cache.avoid(key, now + 50)
            if is_parent and odd == "denied a moment ago":
                cached.deny({"rpm": 1_000}, {"rpm": now + 10**6}, now)

    short, full = Client(thinks_twice=False), Client(thinks_twice=True)
    steps = []
    for client in (short, full):
        prepare(client)
        steps.append(client.first_call(Draw("key", "gpt", wanted), now))
    (plan, asked), (plan_in_full, asked_in_full) = steps
    assert type(asked) is type(asked_in_full)
    assert odd != "plain" or isinstance(asked, Together)
    calls, calls_in_full = ([*getattr(one, "calls", [one])] for one in (asked, asked_in_full))
    if not isinstance(calls[0], Call):
        assert outcome(asked) == outcome(asked_in_full)
        return
    assert [(call.operation, dict(call.params), call.give_up_at) for call in calls] == [
        (call.operation, dict(call.params), call.give_up_at) for call in calls_in_full
    ]
    assert short.remembered() == full.remembered()
    if odd == "plain":
        replies = [{"Attributes": item_of(snapshot, rf=snapshot.rf)} for snapshot in both.values()]
        assert answered(plan, replies, now) == answered(plan_in_full, replies, now)
        assert short.remembered() == full.remembered()


def outcome(asked: Any) -> Any:
    """What a draw came to without a call, or what it asks for instead of one."""
    if isinstance(asked, Denial):
        return asked.statuses, asked.lacking.entity_id, asked.unread_wait_ms
    return repr(asked)


def answered(plan: Plan[Any], reply: Any, now: int) -> Any:
    """What a draw comes to when its write was done."""
    try:
        request = plan.send(reply)
        while True:
            assert request is READ_CLOCK, "the last writer's clock is ahead"
            request = plan.send(now)
    except StopIteration as ended:
        grant = ended.value
        assert isinstance(grant, Grant)
        balances = [(balance.name, balance.tk, balance.tc) for balance in grant.balances]
        return [leg.names for leg in grant.legs], grant.wanted, balances, grant.left, grant.now


def test_what_a_client_took_itself_is_not_taken_for_what_others_take() -> None:
    client, key = Client(thinks_twice=False), bucket_key("ns", "key", "gpt")
    limit = Limit.per_minute("rpm", 1_000)
    client.space.namespace.known_ns = "ns"
    config = ResolvedConfig("key", "gpt", Leg("key", "gpt", (limit,), "system"), "1", 0, "", None, False, None, 0, key)
    client.space.resolver.configs.put(("key", "gpt"), config, 900)
    client.space.resolver.watch.see(None, 900)

    def bucket(taken: int, at: int) -> BucketSnapshot:
        balance = Balance(limit, START, tk=limit.burst * 1_000 - taken, tc=taken)
        writers = (f"{at:x}.me1", "-", "-", "-")
        return BucketSnapshot(
            "key",
            "gpt",
            rf=START,
            cv="1",
            inc="one",
            balances={"rpm": balance},
            recent_writers=writers,
            load_burst=1_000_000,
        )

    cached = client.space.cache.see(key, bucket(0, START), START)
    for taken, expected in ((5_000, {}), (25_000, {"rpm": (15_000, 200)})):  # then others take 15, in 200 ms
        now = cached.seen_at + 200
        plan, _ = client.first_call(Draw("key", "gpt", {"rpm": 5}), now)
        answered(plan, {"Attributes": item_of(bucket(taken, now))}, now)
        assert cached.rates == expected
