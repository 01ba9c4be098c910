"""The small IAM of the tests answers as AWS says that IAM does."""

from __future__ import annotations

from typing import Any

import pytest
from iam_evaluator import Context, is_allowed, like
from recorded_calls import Question, questions_of

ITEM = {"PK": {"S": "n/A#"}, "SK": {"S": "#B"}}
OTHER = {"PK": {"S": "n/C#"}, "SK": {"S": "#B"}}


@pytest.mark.parametrize(
    ("pattern", "value", "wanted"),
    [
        ("n/BUCKET#*", "n/BUCKET#a#b#0", True),
        ("n/BUCKET#*", "m/n/BUCKET#a", False),
        ("n/*", "n/", True),
        ("*/SYSTEM#", "_/SYSTEM#", True),
        ("*/SYSTEM#", "_/SYSTEM##", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a.c", "abc", False),
    ],
)
def test_stars_and_question_marks(pattern: str, value: str, wanted: bool) -> None:
    assert like(pattern, value) is wanted


def allowed(context: Context, *statements: dict[str, Any]) -> bool:
    general = {"Action": "dynamodb:GetItem", "Resource": "arn:t"}
    document = {"Statement": [{**general, **statement} for statement in statements]}
    return is_allowed(document, "dynamodb:GetItem", "arn:t", context)


def keyed(*patterns: str) -> dict[str, Any]:
    return {"Effect": "Allow", "Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(patterns)}}}


def test_what_is_not_allowed_is_refused_and_a_refusal_wins() -> None:
    assert allowed({}, {"Effect": "Allow"})
    assert not allowed({})
    assert not allowed({}, {"Effect": "Allow"}, {"Effect": "Deny"})
    assert not allowed({}, {"Effect": "Allow", "Resource": "arn:t/index/*"})
    assert not allowed({}, {"Effect": "Allow", "Action": ["dynamodb:PutItem"]})


def test_all_keys_must_match_and_none_is_all() -> None:
    assert allowed({"dynamodb:LeadingKeys": {"n/a", "m/b"}}, keyed("n/*", "m/*"))
    assert not allowed({"dynamodb:LeadingKeys": {"n/a", "o/b"}}, keyed("n/*", "m/*"))
    assert allowed({}, keyed("n/*")), "IAM takes all of nothing for true"


def test_two_statements_do_not_add_up_to_one_request() -> None:
    assert not allowed({"dynamodb:LeadingKeys": {"n/a", "m/b"}}, keyed("n/*"), keyed("m/*"))


def test_a_variable_without_a_value_matches_nothing() -> None:
    statement = keyed("${aws:PrincipalTag/ns}/*")
    keys = {"dynamodb:LeadingKeys": {"n/a"}}
    assert allowed({**keys, "aws:PrincipalTag/ns": {"n"}}, statement)
    assert not allowed({**keys, "aws:PrincipalTag/ns": {"m"}}, statement)
    assert not allowed(keys, statement)


def test_what_it_does_not_know_is_an_error() -> None:
    with pytest.raises(AssertionError, match="does not know"):
        allowed({}, {"Effect": "Allow", "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}})
    with pytest.raises(AssertionError, match="not known here"):
        list(questions_of("ExecuteStatement", {}))


def test_a_transaction_asks_for_each_of_its_writes() -> None:
    writes = [
        {"Put": {"Item": ITEM}},
        {"Update": {"Key": ITEM}},
        {"Delete": {"Key": OTHER}},
        {"ConditionCheck": {"Key": OTHER}},
    ]
    assert list(questions_of("TransactWriteItems", {"TransactItems": writes})) == [
        Question("dynamodb:PutItem", None, frozenset({"n/A#"})),
        Question("dynamodb:UpdateItem", None, frozenset({"n/A#"})),
        Question("dynamodb:DeleteItem", None, frozenset({"n/C#"})),
        Question("dynamodb:ConditionCheckItem", None, frozenset({"n/C#"})),
    ]


def test_a_batch_asks_once_for_all_of_its_keys() -> None:
    both = frozenset({"n/A#", "n/C#"})
    reads = {"RequestItems": {"t": {"Keys": [ITEM, OTHER]}}}
    assert list(questions_of("BatchGetItem", reads)) == [Question("dynamodb:BatchGetItem", None, both)]
    writes = {"RequestItems": {"t": [{"DeleteRequest": {"Key": ITEM}}, {"PutRequest": {"Item": OTHER}}]}}
    assert list(questions_of("BatchWriteItem", writes)) == [Question("dynamodb:BatchWriteItem", None, both)]


def test_a_query_of_an_index_asks_for_the_index() -> None:
    params = {
        "IndexName": "GSI2",
        "KeyConditionExpression": "#pk = :pk AND begins_with(#sk, :sk)",
        "ExpressionAttributeValues": {":pk": {"S": "n/RESOURCE#gpt"}},
    }
    (question,) = questions_of("Query", params)
    assert question == Question("dynamodb:Query", "GSI2", frozenset({"n/RESOURCE#gpt"}))
    assert question.arn("arn:t") == "arn:t/index/GSI2"
