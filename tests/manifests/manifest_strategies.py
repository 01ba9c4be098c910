"""Strategies: limits, hierarchies, whole namespaces."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from zae_limiter import Limit, OnUnavailable
from zae_limiter.manifests.model import (
    SYSTEM,
    Level,
    Profile,
    Settings,
    Thing,
    entity_thing,
    limits_of,
    resource_defaults,
)
from zae_limiter.models.limit import MAX_PERIOD_SECONDS, MAX_TOKENS

LIMIT_NAMES = st.sampled_from(["rpm", "tpm", "rpd", "a.b-c_d", "True"])
ENTITY_IDS = st.sampled_from(["acme", "search", "key-1", "user:7@x", "42", "null", "no", "1e3", "0x1F", "1:30", "a"])
RESOURCES = st.sampled_from(["gpt-4", "claude/opus", "7", "true", "a:b", "embeddings"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
TOKENS = st.one_of(st.integers(1, 50), st.integers(1, MAX_TOKENS))
PERIODS = st.one_of(st.sampled_from([1, 60, 90, 3_600, 86_400, 7 * 86_400]), st.integers(1, MAX_PERIOD_SECONDS))


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    name, amount, period = draw(LIMIT_NAMES), draw(TOKENS), draw(PERIODS)
    capacity = amount if draw(st.booleans()) else draw(TOKENS)
    return Limit.custom(name, capacity, amount, period, draw(st.none() | TOKENS))


LEVELS = st.lists(limits(), min_size=1, max_size=3, unique_by=lambda limit: limit.name).map(tuple)


@st.composite
def states(draw: st.DrawFn, *, uncreated: bool = True) -> dict[Thing, Settings]:
    """A namespace: perhaps defaults, some resources, a forest of entities, and limits of some of them.

    With ``uncreated``, limits too of entities that were never created.
    """
    state: dict[Thing, Settings] = {}
    if draw(st.booleans()):
        state[SYSTEM] = Level(draw(LEVELS), draw(st.sampled_from([None, *OnUnavailable])))
    for resource in draw(st.lists(RESOURCES, max_size=3, unique=True)):
        state[resource_defaults(resource)] = Level(draw(LEVELS))
    entity_ids = draw(st.lists(ENTITY_IDS, max_size=6, unique=True))
    for place, entity_id in enumerate(entity_ids):
        parent = draw(st.none() | st.sampled_from(entity_ids[:place])) if place else None
        state[entity_thing(entity_id)] = draw(profiles(parent))
    owners = ENTITY_IDS if uncreated else st.sampled_from(entity_ids or ["nobody"])
    if uncreated or entity_ids:
        pairs = st.tuples(owners, st.just("_default_") | RESOURCES)
        for entity_id, resource in draw(st.lists(pairs, max_size=5, unique=True)):
            state[limits_of(entity_id, resource)] = Level(draw(LEVELS))
    return state


def profiles(parent: str | None) -> st.SearchStrategy[Profile]:
    notes = st.dictionaries(TEXTS, TEXTS | st.just(""), max_size=3)
    return st.builds(Profile, st.none() | TEXTS, st.just(parent), st.booleans(), notes)


WORDS = ["rpm:1", "rpm:0", "wcu:1", "rpm:1/min:0", "x:1/0min", "x:5/2hour:9", "x:1_0", "x:1__0", "block", "acme"]

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**16) | st.text(max_size=8) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
