"""Plans side by side, and strands that are merged: without any engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.dynamodb.plan_driver import Driver
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.operations import paging
from zae_limiter.stores.dynamodb.operations.paging import Merged, Strand, rows_of, side_by_side
from zae_limiter.stores.dynamodb.requests import READ_MACHINE_TIME, Backoff, Call, NoAnswer, Together
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.write_ids import WriteIds

ASKING = TableClient("limits", deadline_ms=2_000, write_ids=WriteIds("1"))


def asks(*operations: str) -> Plan[list[Any]]:
    answers = []
    for operation in operations:
        if operation == "time":
            answers.append(bool((yield from READ_MACHINE_TIME)))
        elif operation == "wait":
            yield from Backoff(1, 0)
        else:
            try:
                answers.append((yield from Call(operation, {}, 0)))
            except NoAnswer:
                answers.append("nothing")
    return answers


def requests_of(plan: Plan[Any], answers: Any) -> tuple[list[Any], Any]:
    """Every request of a plan, and its result."""
    seen: list[Any] = []
    answer: Any = None
    while True:
        try:
            request = plan.send(answer)
        except StopIteration as finished:
            return seen, finished.value
        seen.append([call.operation for call in request.calls] if isinstance(request, Together) else request)
        answer = answers(request)


def test_calls_of_plans_side_by_side_are_made_together() -> None:
    plan = side_by_side([asks("a1", "a2", "a3"), asks(), asks("time", "c1"), asks("d1", "wait", "d2")])

    def answers(request: Any) -> Any:
        return [call.operation.upper() for call in request.calls] if isinstance(request, Together) else 1

    seen, result = requests_of(plan, answers)
    together = [sorted(request) for request in seen if isinstance(request, list)]
    assert together == [["a1", "d1"], ["a2", "c1"], ["a3", "d2"]]
    assert result == [["A1", "A2", "A3"], [], [True, "C1"], ["D1", "D2"]]


def test_each_of_them_gets_its_own_failures() -> None:
    def answer(operation: str, params: Any) -> str:
        if operation.startswith("bad"):
            raise NoAnswer("silence")
        return operation

    driver = Driver(answer)
    assert driver.run(side_by_side([asks("bad1", "good1"), asks("good2")])) == [["nothing", "good1"], ["good2"]]


def fails() -> Plan[list[Any]]:
    yield from Call("x", {}, 0)
    raise LookupError


def test_what_one_of_them_raises_is_raised() -> None:
    with pytest.raises(LookupError):
        Driver(lambda operation, params: operation).run(side_by_side([asks("a", "b"), fails()]))


def test_a_wait_that_is_refused_is_told_to_the_plan_that_waits() -> None:
    driver = Driver(lambda operation, params: operation)
    driver.most_backoffs = 0
    with pytest.raises(NoAnswer):
        driver.run(side_by_side([asks("wait")]))


class Partitions:
    """Answers queries of partitions that are lists of sort keys; some pages are empty."""

    def __init__(self, partitions: Sequence[Sequence[str]]) -> None:
        self.partitions = partitions
        self.queries = 0

    def __call__(self, operation: str, params: Any) -> Any:
        self.queries += 1
        names = sorted(self.partitions[int(params["ExpressionAttributeValues"][":pk"]["S"])])
        if not params["ScanIndexForward"]:
            names.reverse()
        start = int(params.get("ExclusiveStartKey", {}).get("n", 0))
        if start == 1 and "empty" not in params["ExclusiveStartKey"]:
            return {"Items": [], "LastEvaluatedKey": {"n": 1, "empty": True}}
        found = names[start : start + params["Limit"]]
        more = {"LastEvaluatedKey": {"n": start + len(found)}} if start + len(found) < len(names) else {}
        return {"Items": [{"SK": {"S": name}} for name in found], **more}


@given(
    st.lists(st.lists(st.text("ab", max_size=4), max_size=12), min_size=1, max_size=5),
    st.integers(1, 20),
    st.integers(1, 4),
    st.booleans(),
)
def test_merged_strands_are_one_list_in_order(
    partitions: list[list[str]], count: int, read_ahead: int, newest_first: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "READ_AHEAD", read_ahead)
        driver = Driver(Partitions(partitions))
        strands = [Strand(ASKING, str(place), newest_first=newest_first) for place in range(len(partitions))]
        merged = Merged(ASKING, strands, newest_first=newest_first)
        found: list[str] = []
        while taken := driver.run(merged.take(count)):
            assert len(taken) <= count
            found += [item["SK"]["S"] for item in taken]
        assert found == sorted((name for names in partitions for name in names), reverse=newest_first)


def test_rows_that_do_not_belong_do_not_shorten_a_page() -> None:
    names = [f"{number:03}" for number in range(100)]
    driver = Driver(Partitions([names]))
    merged = Merged(ASKING, [Strand(ASKING, "0")])

    def even(item: Any) -> str | None:
        name: str = item["SK"]["S"]
        return name if int(name) % 10 == 0 else None

    assert driver.run(rows_of(merged, 6, even)) == ["000", "010", "020", "030", "040", "050", "060"]


def test_a_list_of_a_namespace_needs_few_round_trips() -> None:
    partitions = [[f"{number * 16 + place:04}" for number in range(20)] for place in range(16)]
    driver = Driver(Partitions(partitions))
    merged = Merged(ASKING, [Strand(ASKING, str(place)) for place in range(16)])
    assert len(driver.run(merged.take(101))) == 101
    assert len(driver.calls) == 16
