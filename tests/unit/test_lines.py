"""Waiting in line: who is next, what is spoken for, and whom a bell wakes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.repository.lines import GRACE_MS, BucketKey, Lines, Patience, Ticket

KEY: BucketKey = ("key-1", "gpt-4")
OTHER: BucketKey = ("key-2", "gpt-4")
ELSEWHERE: BucketKey = ("key-1", "gpt-5")


def rung(*tickets: Ticket) -> list[bool]:
    return [ticket.bell.rung for ticket in tickets]


# Order


def test_whoever_comes_first_is_the_head_until_it_leaves() -> None:
    lines = Lines()
    first, second = lines.join(KEY, {"rpm": 1}), lines.join(KEY, {"rpm": 1})
    assert (lines.is_head(first), lines.is_head(second)) == (True, False)
    lines.leave(first)
    assert lines.is_head(second)


def test_every_bucket_has_a_line_of_its_own() -> None:
    lines = Lines()
    tickets = [lines.join(key, {"rpm": 1}) for key in (KEY, OTHER, ELSEWHERE)]
    assert all(lines.is_head(ticket) for ticket in tickets)


def test_lines_are_false_exactly_while_nobody_waits_anywhere() -> None:
    lines = Lines()
    assert not lines
    one, other = lines.join(KEY, {"rpm": 1}), lines.join(OTHER, {"rpm": 1})
    assert lines
    lines.leave(one)
    assert lines
    lines.leave(other)
    assert not lines


# Bells


def test_leaving_rings_every_head_on_the_resource() -> None:
    lines = Lines()
    first, second, third = (lines.join(KEY, {"rpm": 1}) for _ in range(3))
    neighbour, stranger = lines.join(OTHER, {"rpm": 1}), lines.join(ELSEWHERE, {"rpm": 1})
    lines.leave(first)
    assert rung(first, second, third, neighbour, stranger) == [False, True, False, True, False]


def test_what_comes_back_to_a_bucket_wakes_the_heads_of_other_lines_for_which_it_lacks() -> None:
    """One waiter stands at its own bucket, and its parent lacks as well."""
    parent: BucketKey = ("org", "gpt-4")
    lines = Lines()
    head, behind, other = lines.join(KEY, {"rpm": 1}), lines.join(KEY, {"rpm": 1}), lines.join(OTHER, {"rpm": 1})
    for ticket in (head, behind):
        lines.lacks(ticket, [KEY[0], parent[0]])
    lines.lacks(other, [OTHER[0]])
    lines.recent_writers([parent])
    assert rung(head, behind, other) == [True, False, False]


def test_a_bucket_that_lacks_no_longer_wakes_no_one_else() -> None:
    parent: BucketKey = ("org", "gpt-4")
    lines = Lines()
    moved, served, left = (lines.join((f"key-{number}", "gpt-4"), {"rpm": 1}) for number in range(3))
    for ticket in (moved, served, left):
        lines.lacks(ticket, [ticket.key[0], parent[0]])
    lines.lacks(served, [served.key[0]])
    lines.leave(left)
    lines.move(moved, parent)
    lines.lacks(moved, [parent[0]])
    for ticket in (moved, served, left):
        ticket.bell.rung = False
    lines.recent_writers([parent])
    assert rung(moved, served, left) == [True, False, False], "it stands there"
    lines.leave(moved)
    lines.leave(served)
    assert not lines
    assert not lines._also


def test_giving_up_in_the_middle_of_a_line_lets_the_head_try_again() -> None:
    """What it waited for is no longer spoken for."""
    lines = Lines()
    first, second, third = (lines.join(KEY, {"rpm": 1}) for _ in range(3))
    lines.leave(second)
    assert rung(first, third) == [True, False]
    lines.leave(first)
    assert lines.is_head(third)


def test_a_give_back_rings_the_heads_of_the_buckets_it_concerns() -> None:
    lines = Lines()
    head, behind, neighbour = lines.join(KEY, {}), lines.join(KEY, {}), lines.join(OTHER, {})
    lines.recent_writers(key for key in (KEY, ("nobody", "gpt-4")))
    assert rung(head, behind, neighbour) == [True, False, False]


def test_a_change_of_limits_rings_every_head() -> None:
    lines = Lines()
    heads = [lines.join(key, {}) for key in (KEY, OTHER, ELSEWHERE)]
    behind = lines.join(KEY, {})
    lines.ring_all()
    assert rung(*heads) == [True, True, True]
    assert rung(behind) == [False]


def test_ringing_where_nobody_waits_is_fine() -> None:
    lines = Lines()
    lines.recent_writers([KEY])
    lines.ring_all()
    assert not lines


def test_a_bell_may_be_rung_from_a_callback_that_uses_the_lines() -> None:
    """No bell rings while the lines are locked."""
    lines = Lines()
    first, second = lines.join(KEY, {"rpm": 1}), lines.join(KEY, {"rpm": 1})
    heard: list[bool] = []
    second.bell.listen(lambda: heard.append(lines.is_head(second)))
    lines.leave(first)
    lines.recent_writers([KEY])
    lines.ring_all()
    assert heard == [True, True, True]


# What is spoken for


def test_what_stands_in_line_is_added_up_per_entity_and_limit() -> None:
    lines = Lines()
    lines.join(KEY, {"rpm": 1, "tpm": 500})
    lines.join(KEY, {"rpm": 2})
    lines.join(OTHER, {"tpm": 7})
    assert lines.waited_for("gpt-4") == {"key-1": {"rpm": 3, "tpm": 500}, "key-2": {"tpm": 7}}


def test_other_resources_do_not_count() -> None:
    lines = Lines()
    lines.join(ELSEWHERE, {"rpm": 9})
    assert lines.waited_for("gpt-4") == {}
    assert lines.waited_for("gpt-5") == {"key-1": {"rpm": 9}}


def test_in_its_own_line_a_ticket_yields_only_to_those_before_it() -> None:
    lines = Lines()
    lines.join(OTHER, {"rpm": 5})
    lines.join(KEY, {"rpm": 1})
    mine = lines.join(KEY, {"rpm": 10})
    lines.join(KEY, {"rpm": 100})
    assert lines.waited_for("gpt-4", mine) == {"key-1": {"rpm": 1}, "key-2": {"rpm": 5}}


def test_the_head_yields_to_nobody_in_its_own_line() -> None:
    lines = Lines()
    head = lines.join(KEY, {"rpm": 1})
    lines.join(KEY, {"rpm": 10})
    assert lines.waited_for("gpt-4", head) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from([KEY, OTHER, ELSEWHERE]),
            st.dictionaries(st.sampled_from(["rpm", "tpm"]), st.integers(0, 100)),
            st.integers(0, 9),
        ),
        max_size=30,
    )
)
def test_lines_behave_like_plain_queues(moves: list[tuple[BucketKey, dict[str, int], int]]) -> None:
    """Each move joins a line, then perhaps somebody leaves theirs; beside it a list per bucket is kept by hand."""
    lines = Lines()
    queues: dict[BucketKey, list[Ticket]] = {KEY: [], OTHER: [], ELSEWHERE: []}
    for key, amounts, leaver in moves:
        queues[key].append(lines.join(key, amounts))
        if leaver < len(queues[key]):
            lines.leave(queues[key].pop(leaver))
        waiting = [ticket for queue in queues.values() for ticket in queue]
        assert bool(lines) is bool(waiting)
        assert [lines.is_head(ticket) for ticket in waiting] == [queues[ticket.key][0] is ticket for ticket in waiting]
        for ticket in waiting:
            ahead = lines.waited_for(ticket.key[1], ticket).get(ticket.key[0], {})
            queue = queues[ticket.key]
            before = queue[: queue.index(ticket)]
            assert ahead == {
                name: sum(other.amounts.get(name, 0) for other in before)
                for name in {name for other in before for name in other.amounts}
            }


# Abandoned places


def test_a_waiter_that_never_came_back_holds_up_no_one_and_wakes_no_one() -> None:
    def timer() -> int:
        return 0

    lines = Lines()
    gone = lines.join(KEY, {"rpm": 1}, Patience(1_000, timer))
    stays = lines.join(KEY, {"rpm": 1}, Patience(60_000, timer))
    lines.lacks(gone, ["key-1", "key-2"])
    lines.drop_abandoned(timer, 1_000 + GRACE_MS)
    assert not lines.is_head(stays), "it may only be late"
    lines.drop_abandoned(timer, 1_001 + GRACE_MS)
    assert (lines.is_head(stays), rung(stays)) == (True, [True])
    lines.recent_writers([OTHER])  # where it lacked as well
    assert lines.waited_for("gpt-4") == {"key-1": {"rpm": 1}}
