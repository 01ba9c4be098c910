"""What calls to DynamoDB bring back: replies, and refusals with all that plans need. On every engine."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from engines.servers import Engine
from support.transports import WORLDS, add, get, put, put_new, target_of
from zae_limiter.stores.dynamodb.requests import CONDITION_FAILED, TABLE_NOT_FOUND, NoAnswer, Reason, Refused
from zae_limiter.stores.dynamodb.transport.botocore_fallback import timeout_for
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target, transports_for

pytestmark = pytest.mark.usefixtures("no_credentials_here")


@WORLDS
def test_dynamodb_json_goes_in_and_comes_out_as_it_is(asking: Any, engine: Engine, table: str) -> None:
    with asking(target_of(engine)) as ask:
        ask("PutItem", put(table, "a", 7))
        assert ask("GetItem", get(table, "a"))["Item"] == {"PK": {"S": "a"}, "n": {"N": "7"}}
        assert "Item" not in ask("GetItem", get(table, "b"))
        assert ask("UpdateItem", add(table, "a"))["Attributes"] == {"PK": {"S": "a"}, "n": {"N": "8"}}


@WORLDS
def test_a_missing_table_is_a_refusal(asking: Any, engine: Engine) -> None:
    with asking(target_of(engine)) as ask, pytest.raises(Refused) as caught:
        ask("GetItem", get("never-created", "a"))
    assert caught.value.code == TABLE_NOT_FOUND
    assert caught.value.message != ""


@WORLDS
def test_a_failed_condition_brings_the_item(asking: Any, engine: Engine, table: str) -> None:
    with asking(target_of(engine)) as ask:
        ask("PutItem", put(table, "a", 7))
        with pytest.raises(Refused) as caught:
            ask("PutItem", put_new(table, "a"))
    assert caught.value.code == CONDITION_FAILED
    assert caught.value.by_condition
    assert caught.value.item == {"PK": {"S": "a"}, "n": {"N": "7"}}


@WORLDS
def test_a_failed_condition_on_nothing_brings_no_item(asking: Any, engine: Engine, table: str) -> None:
    condition = {
        "ConditionExpression": "attribute_exists(PK)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    with asking(target_of(engine)) as ask, pytest.raises(Refused) as caught:
        ask("UpdateItem", add(table, "nobody") | condition)
    assert caught.value.by_condition
    assert caught.value.item is None


@WORLDS
def test_a_canceled_transaction_has_a_reason_per_item(asking: Any, engine: Engine, table: str) -> None:
    with asking(target_of(engine)) as ask:
        ask("PutItem", put(table, "a", 7))
        with pytest.raises(Refused) as caught:
            ask("TransactWriteItems", {"TransactItems": [{"Put": put(table, "b")}, {"Put": put_new(table, "a")}]})
        assert "Item" not in ask("GetItem", get(table, "b"))
    assert caught.value.reasons == (
        Reason(None),
        Reason("ConditionalCheckFailed", {"PK": {"S": "a"}, "n": {"N": "7"}}),
    )


@WORLDS
def test_a_nonsensical_call_is_a_refusal(asking: Any, engine: Engine, table: str) -> None:
    with asking(target_of(engine)) as ask, pytest.raises(Refused) as caught:
        ask("UpdateItem", add(table, "a") | {"UpdateExpression": "ADD #n"})
    assert caught.value.code == "ValidationException"


@WORLDS
def test_an_engine_on_this_machine_needs_no_region_and_no_credentials(asking: Any, engine: Engine) -> None:
    with asking(Target(endpoint_url=engine.endpoint_url)) as ask:
        assert "TableNames" in ask("ListTables", {})


@WORLDS
def test_credentials_of_the_environment_are_used(asking: Any, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    with asking(target_of(engine)) as ask, pytest.raises(NoAnswer, match="Partial credentials") as caught:
        ask("ListTables", {})
    assert caught.value.sent is False
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with asking(target_of(engine)) as ask:
        assert "TableNames" in ask("ListTables", {})


@WORLDS
def test_streams_are_at_the_same_endpoint(asking: Any, engine: Engine, table: str) -> None:
    with asking(target_of(engine)) as ask:
        ask("PutItem", put(table, "a", 7))
        arn = ask("DescribeTable", {"TableName": table})["Table"]["LatestStreamArn"]
        assert arn in [stream["StreamArn"] for stream in ask("ListStreams", {"TableName": table})["Streams"]]
        shard = ask("DescribeStream", {"StreamArn": arn})["StreamDescription"]["Shards"][0]["ShardId"]
        where = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        records = ask("GetRecords", {"ShardIterator": ask("GetShardIterator", where)["ShardIterator"]})["Records"]
    assert [record["dynamodb"]["NewImage"]["n"] for record in records] == [{"N": "7"}]


# What is loaded, and what is said when it is not there


LOADING = """
import sys
from zae_limiter.stores.dynamodb.transport import botocore_fallback, protocol, service
for kind in protocol.TRANSPORT_KINDS:
    for make in protocol.transports_for(protocol.Target(), kind):
        make()
print(*{name.partition(".")[0] for name in sys.modules} & {"botocore", "urllib3"})
"""


def test_nothing_of_botocore_is_loaded_before_the_first_call() -> None:
    finished = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.strip() == ""


def test_there_are_two_ways_and_no_other() -> None:
    assert [type(make()).__name__ for make in transports_for(Target())] == ["SocketTransport", "AsyncioTransport"]
    assert [type(make()).__name__ for make in transports_for(Target(), "botocore")] == [
        "BotocoreTransport",
        "AsyncBotocoreTransport",
    ]
    with pytest.raises(ValueError, match="'pigeons'"):
        transports_for(Target(), "pigeons")  # type: ignore[arg-type]


@WORLDS
def test_a_missing_extra_says_what_to_install(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setenv("AWS_PROFILE", "work")
    with asking(Target("us-east-1", "http://127.0.0.1:1")) as ask, pytest.raises(ImportError) as caught:
        ask("GetItem", get("t", "a"))
    assert "pip install '.[dynamodb]' in a clone" in str(caught.value)


def test_credentials_do_not_show_their_secret() -> None:
    assert "hush" not in repr(Target("us-east-1", None, Credentials("AKIA", "hush", "hush")))


@pytest.mark.parametrize(
    ("seconds", "patience"), [(5.0, 4.0), (2.0, 2.0), (1.95, 2.0), (1.5, 1.0), (0.01, 0.1), (1000.0, 64.0)]
)
def test_a_call_goes_to_the_most_patient_client_its_time_allows(seconds: float, patience: float) -> None:
    assert timeout_for(seconds) == patience
