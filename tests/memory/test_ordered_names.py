"""Names that can be listed in order take no more room than there are names."""

from __future__ import annotations

from zae_limiter.stores.memory.tables import SPARE, OrderedNames


def test_names_that_come_and_go_do_not_pile_up_while_they_are_not_listed() -> None:
    names: OrderedNames[str] = OrderedNames()
    for number in range(10_000):
        names.add(f"{number % 50:02}")
        names.discard(f"{(number + 25) % 50:02}")
    assert len(names._listed) <= 2 * 50 + SPARE + 1
    assert names.after(None) == sorted(names._names)


def test_they_are_listed_in_order_after_any_name() -> None:
    names: OrderedNames[str] = OrderedNames()
    for name in ("c", "a", "d", "b", "a"):
        names.add(name)
    names.discard("d")
    assert names.after(None) == ["a", "b", "c"]
    assert names.after("a", 1) == ["b"]
