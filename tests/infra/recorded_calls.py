"""What IAM is asked when DynamoDB is called: a transport that notes it, beside the operation that made the call.

DynamoDB asks IAM for one action per call, except for transactions: there it asks for the action of every write in it.
``dynamodb:LeadingKeys`` are the partition keys a call names; of a query on an index, those of the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from zae_limiter.stores.dynamodb.requests import NoAnswer

IN_TRANSACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}


class Question(NamedTuple):
    """One thing IAM is asked: may this be done to the table (or this index of it), under these partition keys?"""

    action: str
    index: str | None
    keys: frozenset[str]

    def arn(self, table_arn: str) -> str:
        return table_arn if self.index is None else f"{table_arn}/index/{self.index}"


def questions_of(operation: str, params: Mapping[str, Any]) -> Iterator[Question]:
    """What IAM is asked about a call. A call that this does not know is an error."""
    if operation == "TransactWriteItems":
        for write in params["TransactItems"]:
            ((kind, inner),) = write.items()
            yield Question(
                f"dynamodb:{IN_TRANSACTIONS[kind]}", None, frozenset({_pk(inner.get("Key") or inner["Item"])})
            )
        return
    action = f"dynamodb:{operation}"
    if operation in ("GetItem", "UpdateItem", "DeleteItem"):
        yield Question(action, None, frozenset({_pk(params["Key"])}))
    elif operation == "PutItem":
        yield Question(action, None, frozenset({_pk(params["Item"])}))
    elif operation == "Query":
        (condition, *_) = params["KeyConditionExpression"].split(" AND ")
        assert condition == "#pk = :pk"
        key = params["ExpressionAttributeValues"][":pk"]["S"]
        yield Question(action, params.get("IndexName"), frozenset({key}))
    elif operation == "BatchGetItem":
        (request,) = params["RequestItems"].values()
        yield Question(action, None, frozenset(map(_pk, request["Keys"])))
    elif operation == "BatchWriteItem":
        (writes,) = params["RequestItems"].values()
        places = [next(iter(write.values())) for write in writes]
        yield Question(action, None, frozenset(_pk(place.get("Key") or place["Item"]) for place in places))
    elif operation == "DescribeTable":
        yield Question(action, None, frozenset())
    else:
        raise AssertionError(f"what IAM is asked about {operation} is not known here")


def _pk(item: Mapping[str, Any]) -> str:
    pk: str = item["PK"]["S"]
    return pk


class Recording:
    """Wraps a sync transport. ``asked`` has what IAM was asked, by the operation under way."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._operation: str | None = None
        self.asked: dict[str, set[Question]] = {}
        self._to_lose: int | None = None

    @contextmanager
    def during(self, operation: str) -> Iterator[None]:
        """Everything called in here is called for ``operation``."""
        self._operation = operation
        self.asked.setdefault(operation, set())
        try:
            yield
        finally:
            self._operation = None

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        if self._operation is not None:
            self.asked[self._operation].update(questions_of(operation, params))
        reply = self._transport.call(operation, params, seconds)
        if self._to_lose is not None:
            self._to_lose -= 1
            if self._to_lose == 0:
                raise NoAnswer("lost on the way back")
        return reply

    def lose_answer(self, number: int | None) -> None:
        """Let the answer to that one of the next calls get lost on the way back; to none of them if none is named."""
        self._to_lose = number

    def close(self) -> None:
        self._transport.close()
