"""What Envoy's descriptors ask for."""

from __future__ import annotations

import pytest

from zae_limiter import Limit, ValidationError
from zae_limiter.service.envoy.descriptors import (
    Asked,
    Demand,
    Descriptor,
    DescriptorRules,
    Override,
    limit_of,
    read_descriptors,
)


def asked(*descriptors: Descriptor, hits_addend: int = 0, rules: DescriptorRules | None = None) -> Asked:
    return read_descriptors("shop", descriptors, hits_addend, rules or DescriptorRules())


def demand(entries: dict[str, str], hits: int | None = None, **options: object) -> Demand:
    """The one demand of one descriptor."""
    (found,) = asked(Descriptor(entries, hits), **options).demands  # type: ignore[arg-type]
    return found


# Names


@pytest.mark.parametrize(
    ("entries", "entity"),
    [
        ({"entity": "key-1", "remote_address": "10.0.0.1"}, "key-1"),
        ({"remote_address": "10.0.0.1"}, "ip:10.0.0.1"),
        ({"remote_address": "fd00::1"}, "ip:fd00::1"),
        ({"masked_remote_address": "10.0.0.0/24"}, "ip:10.0.0.0_24"),
        ({"generic_key": "all"}, "anonymous"),
        ({"entity": "", "remote_address": "10.0.0.1"}, "ip:10.0.0.1"),
    ],
)
def test_the_entity_is_the_named_one_or_the_address_or_all_callers(entries: dict[str, str], entity: str) -> None:
    assert demand(entries).entity_id == entity


@pytest.mark.parametrize(
    ("entries", "resource"),
    [
        ({"resource": "chat", "model": "m", "generic_key": "g"}, "chat"),
        ({"model": "m", "generic_key": "g"}, "m"),
        ({"generic_key": "g"}, "g"),
        ({"entity": "key-1"}, "shop"),
    ],
)
def test_the_resource_is_the_named_one_or_the_domain(entries: dict[str, str], resource: str) -> None:
    assert demand(entries).resource == resource


def test_a_descriptor_without_a_limit_is_about_requests() -> None:
    assert demand({"entity": "a"}).amounts == {"requests": 1}
    assert demand({"entity": "a", "limit": "tpm"}).amounts == {"tpm": 1}


def test_further_keys_stand_behind_the_known_ones() -> None:
    rules = DescriptorRules.of(["user=entity", "path=resource", "kind=limit"])
    found = demand({"user": "u", "path": "/p", "kind": "rpm", "generic_key": "g"}, rules=rules)
    assert (found.entity_id, found.resource, found.amounts) == ("u", "/p", {"rpm": 1})
    assert demand({"entity": "e", "user": "u"}, rules=rules).entity_id == "e"
    assert demand({"user": "u", "remote_address": "10.0.0.1"}, rules=rules).entity_id == "u"


@pytest.mark.parametrize("pair", ["user", "=entity", "user=who", ""])
def test_a_pair_that_names_no_role_is_refused(pair: str) -> None:
    with pytest.raises(ValidationError, match="KEY=ROLE"):
        DescriptorRules.of([pair])


# Amounts


def test_hits_are_the_descriptors_or_the_requests_or_one() -> None:
    assert demand({"entity": "a"}, 7, hits_addend=3).amounts == {"requests": 7}
    assert demand({"entity": "a"}, hits_addend=3).amounts == {"requests": 3}
    assert demand({"entity": "a"}).amounts == {"requests": 1}


def test_an_explicit_zero_only_looks() -> None:
    found = demand({"entity": "a"}, 0, hits_addend=3)
    assert (found.amounts, found.looks) == ({"requests": 0}, {"requests"})


def test_descriptors_of_one_entity_and_resource_are_one_demand() -> None:
    key = {"entity": "a", "resource": "r"}
    (found,) = asked(
        Descriptor(key), Descriptor({**key, "limit": "tpm"}, 400), Descriptor({**key, "limit": "usd"}, 0)
    ).demands
    assert found.amounts == {"requests": 1, "tpm": 400, "usd": 0}
    assert found.looks == {"usd"}
    assert found.places == {"requests": [0], "tpm": [1], "usd": [2]}


def test_two_descriptors_of_one_limit_are_two_hits() -> None:
    (found,) = asked(
        Descriptor({"entity": "a"}), Descriptor({"entity": "a"}, 2), Descriptor({"entity": "a"}, 0)
    ).demands
    assert (found.amounts, found.looks, found.places) == ({"requests": 3}, set(), {"requests": [0, 1, 2]})


def test_several_pairs_keep_their_order() -> None:
    found = asked(Descriptor({"entity": "b"}), Descriptor({"entity": "a"}), Descriptor({"entity": "b"})).demands
    assert [demand.entity_id for demand in found] == ["b", "a"]
    assert found[0].amounts == {"requests": 2}


@pytest.mark.parametrize(
    ("entries", "hits", "is_estimate"),
    [
        ({"limit": "tpm"}, 400, True),
        ({"limit": "tpm"}, None, False),
        ({"limit": "tpm"}, 0, False),
        ({"limit": "rpm"}, 2, False),
        ({}, 2, False),
    ],
)
def test_hits_of_its_own_of_anything_but_requests_are_an_estimate(
    entries: dict[str, str], hits: int | None, is_estimate: bool
) -> None:
    assert demand({"entity": "a", **entries}, hits).is_estimate is is_estimate


def test_negative_hits_are_ignored_and_counted() -> None:
    found = asked(Descriptor({"entity": "a"}, 7, is_negative=True), Descriptor({"lease": "t"}, 7, is_negative=True))
    assert found == Asked([], {}, 2, ignored_negative=2)


# Leases


def test_the_lease_of_a_stream_that_is_done_is_settled() -> None:
    found = asked(
        Descriptor({"lease": "t1", "limit": "tpm"}, 123),
        Descriptor({"lease": "t1", "limit": "usd"}, 0),
        Descriptor({"lease": "t2,t3", "limit": "tpm"}, 5),
    )
    assert found.demands == []
    assert found.settlements == {"t1": {"tpm": 123, "usd": 0}, "t2": {"tpm": 5}, "t3": {"tpm": 5}}


def test_a_lease_without_hits_ends_as_it_is() -> None:
    assert asked(Descriptor({"lease": "t"})).settlements == {"t": {}}
    assert asked(Descriptor({"lease": "t"}), hits_addend=3).settlements == {"t": {"requests": 3}}


# Overrides


def test_an_override_is_ignored_and_counted_unless_it_is_allowed() -> None:
    descriptor = Descriptor({"entity": "a"}, override=Override(9, 2))
    found = asked(descriptor)
    assert (found.demands[0].overrides, found.ignored_overrides) == ({}, 1)
    found = asked(descriptor, rules=DescriptorRules(allow_overrides=True))
    assert (found.demands[0].overrides, found.ignored_overrides) == ({"requests": Limit.per_minute("requests", 9)}, 0)


@pytest.mark.parametrize(
    ("unit", "limit"),
    [
        (1, Limit.per_second("n", 9)),
        (2, Limit.per_minute("n", 9)),
        (3, Limit.per_hour("n", 9)),
        (4, Limit.per_day("n", 9)),
        (5, Limit.per_month("n", 9)),
        (6, Limit.calendar("n", 9, "12month")),
    ],
)
def test_units_are_envoys(unit: int, limit: Limit) -> None:
    assert limit_of("n", Override(9, unit)) == limit


@pytest.mark.parametrize("override", [Override(9, 0), Override(9, 99), Override(0, 2)])
def test_an_override_that_is_no_limit_is_refused(override: Override) -> None:
    with pytest.raises(ValidationError):
        limit_of("n", override)
