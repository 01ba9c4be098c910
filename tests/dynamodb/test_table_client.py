"""Reading a whole partition: page after page, each within its time."""

from __future__ import annotations

from typing import Any

import pytest

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import Call, MachineTime, ReadMachineTime
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient
from zae_limiter.stores.dynamodb.write_ids import WriteIds

PARTITION = "ns/ENTITY#key"
ITEMS = [
    {
        "PK": {"S": f"ns/BUCKET#key#gpt#{number}"},
        "SK": {"S": "#STATE"},
        "GSI3PK": {"S": PARTITION},
        "GSI3SK": {"S": f"BUCKET#gpt#{number}"},
    }
    for number in range(5)
]
PAGES = {None: (0, 2), 1: (2, 2), 2: (2, 5)}
"""By where a page starts: which items it has. The second one has none, as pages of real tables may."""


def answers(plan: Plan[list[Any]]) -> tuple[list[Any], list[Call], int]:
    """What a plan returns, its calls, and how often it looked at the time. A second passes with every request."""
    calls: list[Call] = []
    looks = 0
    answer: Any = None
    for second in range(20):
        try:
            request = plan.send(answer)
        except StopIteration as finished:
            return finished.value, calls, looks
        if isinstance(request, ReadMachineTime):
            looks += 1
            answer = MachineTime(second * 1_000, second)
        else:
            assert isinstance(request, Call)
            calls.append(request)
            answer = page(request.params.get("ExclusiveStartKey"))
    raise AssertionError("a plan that does not end")


def page(start: Any) -> dict[str, Any]:
    place = None if start is None else int(start["N"])
    first, end = PAGES[place]
    following = {"N": str((place or 0) + 1)} if end < len(ITEMS) else None
    return {"Items": ITEMS[first:end], **({} if following is None else {"LastEvaluatedKey": following})}


@pytest.fixture
def asking() -> TableClient:
    return TableClient("limits", deadline_ms=2_000, write_ids=WriteIds())


def test_every_page_is_read_in_order_and_has_a_time_of_its_own(asking: TableClient) -> None:
    found, calls, looks = answers(asking.query_all(PARTITION, index="GSI3", prefix="BUCKET#"))
    assert found == ITEMS
    assert looks == len(calls) == len(PAGES)
    assert [call.give_up_at for call in calls] == [2_000, 4_000, 6_000]
    assert {call.params["IndexName"] for call in calls} == {"GSI3"}


def test_within_a_window_all_pages_share_its_time(asking: TableClient) -> None:
    found, calls, looks = answers(
        asking.query_all(PARTITION, Deadline(0, 700, 1, 1), between=("BUCKET#0", "BUCKET#9"))
    )
    assert (found, looks) == (ITEMS, 0)
    assert [call.give_up_at for call in calls] == [700] * len(PAGES)
