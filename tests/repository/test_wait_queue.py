"""The wait queue: which caller is next, what is reserved for it, and what wakes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.repository.wait_queue import GRACE_MS, BucketKey, WaitDeadline, Waiter, WaitQueue

KEY: BucketKey = ("key-1", "gpt-4")
OTHER: BucketKey = ("key-2", "gpt-4")
ELSEWHERE: BucketKey = ("key-1", "gpt-5")


def is_set(*waiters: Waiter) -> list[bool]:
    return [waiter.wake_up.is_set for waiter in waiters]


# Order


def test_the_first_to_come_is_the_head_until_it_leaves() -> None:
    wait_queue = WaitQueue()
    first, second = wait_queue.join(KEY, {"rpm": 1}), wait_queue.join(KEY, {"rpm": 1})
    assert (wait_queue.is_head(first), wait_queue.is_head(second)) == (True, False)
    wait_queue.leave(first)
    assert wait_queue.is_head(second)


def test_every_bucket_has_a_queue_of_its_own() -> None:
    wait_queue = WaitQueue()
    waiters = [wait_queue.join(key, {"rpm": 1}) for key in (KEY, OTHER, ELSEWHERE)]
    assert all(wait_queue.is_head(waiter) for waiter in waiters)


def test_the_queue_is_false_exactly_while_no_caller_waits() -> None:
    wait_queue = WaitQueue()
    assert not wait_queue
    one, other = wait_queue.join(KEY, {"rpm": 1}), wait_queue.join(OTHER, {"rpm": 1})
    assert wait_queue
    wait_queue.leave(one)
    assert wait_queue
    wait_queue.leave(other)
    assert not wait_queue


# Wake-ups


def test_leaving_wakes_every_head_on_the_resource() -> None:
    wait_queue = WaitQueue()
    first, second, third = (wait_queue.join(KEY, {"rpm": 1}) for _ in range(3))
    neighbour, stranger = wait_queue.join(OTHER, {"rpm": 1}), wait_queue.join(ELSEWHERE, {"rpm": 1})
    wait_queue.leave(first)
    assert is_set(first, second, third, neighbour, stranger) == [False, True, False, True, False]


def test_what_comes_back_to_a_bucket_wakes_the_heads_of_other_queues_for_which_it_lacks() -> None:
    """One waiter stands at its own bucket, and its parent lacks as well."""
    parent: BucketKey = ("org", "gpt-4")
    wait_queue = WaitQueue()
    head, behind, other = (
        wait_queue.join(KEY, {"rpm": 1}),
        wait_queue.join(KEY, {"rpm": 1}),
        wait_queue.join(OTHER, {"rpm": 1}),
    )
    for waiter in (head, behind):
        wait_queue.note_lacking(waiter, [KEY, parent])
    wait_queue.note_lacking(other, [OTHER])
    wait_queue.wake([parent])
    assert is_set(head, behind, other) == [True, False, False]


def test_a_bucket_that_lacks_no_longer_wakes_no_one_else() -> None:
    parent: BucketKey = ("org", "gpt-4")
    wait_queue = WaitQueue()
    moved, served, left = (wait_queue.join((f"key-{number}", "gpt-4"), {"rpm": 1}) for number in range(3))
    for waiter in (moved, served, left):
        wait_queue.note_lacking(waiter, [waiter.key, parent])
    wait_queue.note_lacking(served, [served.key])
    wait_queue.leave(left)
    wait_queue.move(moved, parent)
    wait_queue.note_lacking(moved, [parent])
    for waiter in (moved, served, left):
        waiter.wake_up.is_set = False
    wait_queue.wake([parent])
    assert is_set(moved, served, left) == [True, False, False], "it stands there"
    wait_queue.leave(moved)
    wait_queue.leave(served)
    assert not wait_queue
    assert not wait_queue._also_lacking


def test_giving_up_in_the_middle_of_a_queue_lets_the_head_try_again() -> None:
    """What it waited for is no longer spoken for."""
    wait_queue = WaitQueue()
    first, second, third = (wait_queue.join(KEY, {"rpm": 1}) for _ in range(3))
    wait_queue.leave(second)
    assert is_set(first, third) == [True, False]
    wait_queue.leave(first)
    assert wait_queue.is_head(third)


def test_a_give_back_wakes_the_heads_of_the_buckets_it_concerns() -> None:
    wait_queue = WaitQueue()
    head, behind, neighbour = wait_queue.join(KEY, {}), wait_queue.join(KEY, {}), wait_queue.join(OTHER, {})
    wait_queue.wake(key for key in (KEY, ("nobody", "gpt-4")))
    assert is_set(head, behind, neighbour) == [True, False, False]


def test_a_change_of_limits_wakes_every_head() -> None:
    wait_queue = WaitQueue()
    heads = [wait_queue.join(key, {}) for key in (KEY, OTHER, ELSEWHERE)]
    behind = wait_queue.join(KEY, {})
    wait_queue.wake_all()
    assert is_set(*heads) == [True, True, True]
    assert is_set(behind) == [False]


def test_waking_where_no_caller_waits_is_fine() -> None:
    wait_queue = WaitQueue()
    wait_queue.wake([KEY])
    wait_queue.wake_all()
    assert not wait_queue


def test_a_waiter_may_be_woken_by_a_callback_that_uses_the_queue() -> None:
    """No waiter is woken while the queue is locked."""
    wait_queue = WaitQueue()
    first, second = wait_queue.join(KEY, {"rpm": 1}), wait_queue.join(KEY, {"rpm": 1})
    heard: list[bool] = []
    second.wake_up.listen(lambda: heard.append(wait_queue.is_head(second)))
    wait_queue.leave(first)
    wait_queue.wake([KEY])
    wait_queue.wake_all()
    assert heard == [True, True, True]


# What is spoken for


def test_what_is_waited_for_is_added_up_per_entity_and_limit() -> None:
    wait_queue = WaitQueue()
    wait_queue.join(KEY, {"rpm": 1, "tpm": 500})
    wait_queue.join(KEY, {"rpm": 2})
    wait_queue.join(OTHER, {"tpm": 7})
    assert wait_queue.waited_for("gpt-4") == {KEY: {"rpm": 3, "tpm": 500}, OTHER: {"tpm": 7}}


def test_what_is_waited_for_at_a_total_counts_on_every_resource() -> None:
    wait_queue, total = WaitQueue(), ("key-1", "*")
    first = wait_queue.join(total, {"rpm": 2})
    there, elsewhere = wait_queue.join(KEY, {"rpm": 1}), wait_queue.join(ELSEWHERE, {"rpm": 1})
    assert wait_queue.waited_for("gpt-4") == {total: {"rpm": 2}, KEY: {"rpm": 1}}
    wait_queue.leave(first)
    assert is_set(there, elsewhere) == [True, True]


def test_other_resources_do_not_count() -> None:
    wait_queue = WaitQueue()
    wait_queue.join(ELSEWHERE, {"rpm": 9})
    assert wait_queue.waited_for("gpt-4") == {}
    assert wait_queue.waited_for("gpt-5") == {ELSEWHERE: {"rpm": 9}}


def test_in_its_own_queue_a_waiter_yields_only_to_those_before_it() -> None:
    wait_queue = WaitQueue()
    wait_queue.join(OTHER, {"rpm": 5})
    wait_queue.join(KEY, {"rpm": 1})
    mine = wait_queue.join(KEY, {"rpm": 10})
    wait_queue.join(KEY, {"rpm": 100})
    assert wait_queue.waited_for("gpt-4", mine) == {KEY: {"rpm": 1}, OTHER: {"rpm": 5}}


def test_the_head_never_yields_in_its_own_queue() -> None:
    wait_queue = WaitQueue()
    head = wait_queue.join(KEY, {"rpm": 1})
    wait_queue.join(KEY, {"rpm": 10})
    assert wait_queue.waited_for("gpt-4", head) == {}


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
def test_waiters_come_in_the_order_of_plain_queues(moves: list[tuple[BucketKey, dict[str, int], int]]) -> None:
    """Each move joins a queue, then perhaps a waiter leaves its own; beside it a list per bucket is kept by hand."""
    wait_queue = WaitQueue()
    queues: dict[BucketKey, list[Waiter]] = {KEY: [], OTHER: [], ELSEWHERE: []}
    for key, amounts, leaver in moves:
        queues[key].append(wait_queue.join(key, amounts))
        if leaver < len(queues[key]):
            wait_queue.leave(queues[key].pop(leaver))
        waiting = [waiter for queue in queues.values() for waiter in queue]
        assert bool(wait_queue) is bool(waiting)
        assert [wait_queue.is_head(waiter) for waiter in waiting] == [
            queues[waiter.key][0] is waiter for waiter in waiting
        ]
        for waiter in waiting:
            ahead = wait_queue.waited_for(waiter.key[1], waiter).get(waiter.key, {})
            queue = queues[waiter.key]
            before = queue[: queue.index(waiter)]
            assert ahead == {
                name: sum(other.amounts.get(name, 0) for other in before)
                for name in {name for other in before for name in other.amounts}
            }


# Abandoned places


def test_a_waiter_that_never_came_back_holds_up_no_one_and_wakes_no_one() -> None:
    def timer() -> int:
        return 0

    wait_queue = WaitQueue()
    gone = wait_queue.join(KEY, {"rpm": 1}, WaitDeadline(1_000, timer))
    stays = wait_queue.join(KEY, {"rpm": 1}, WaitDeadline(60_000, timer))
    wait_queue.note_lacking(gone, [KEY, OTHER])
    wait_queue.drop_abandoned(timer, 1_000 + GRACE_MS)
    assert not wait_queue.is_head(stays), "it may only be late"
    wait_queue.drop_abandoned(timer, 1_001 + GRACE_MS)
    assert (wait_queue.is_head(stays), is_set(stays)) == (True, [True])
    wait_queue.wake([OTHER])  # where it lacked as well
    assert wait_queue.waited_for("gpt-4") == {KEY: {"rpm": 1}}
