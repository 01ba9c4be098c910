"""What is put on the wire, and what answers mean: the same as with botocore, and never more than they say."""

from __future__ import annotations

import contextlib
import json
import time
from types import MappingProxyType
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.scripted_server import KEYS
from zae_limiter.stores.dynamodb.requests import NoAnswer, Reason, Refused
from zae_limiter.stores.dynamodb.transport.credentials import StaticCredentials
from zae_limiter.stores.dynamodb.transport.http_replies import HttpReply, epoch_s_of_date
from zae_limiter.stores.dynamodb.transport.service import Service
from zae_limiter.stores.dynamodb.transport.settings import InvalidEndpoint, ServiceSettings, endpoint_at


def service_at(url: str, name: str = "dynamodb") -> Service:
    return Service(ServiceSettings(endpoint_at(url, "eu-west-1"), StaticCredentials(KEYS)), name)


SERVICE = service_at("https://dynamodb.eu-west-1.amazonaws.com")
SENT = SERVICE.sign("GetItem", {}, KEYS)


def decoded(status: int, content: Any, **headers: str) -> Any:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return SERVICE.decode(HttpReply(status, named, body), SENT)


def failed(status: int, content: Any, **headers: str) -> Refused | NoAnswer:
    with pytest.raises((Refused, NoAnswer)) as caught:
        decoded(status, content, **headers)
    failure: Refused | NoAnswer = caught.value
    return failure


# Requests


def test_a_call_is_a_post_of_compact_json() -> None:
    params = {"TableName": "t", "Key": MappingProxyType({"PK": {"S": "ä"}}), "Limit": 3, "n": ({"N": "1"},)}
    head, _, body = SERVICE.sign("GetItem", params, KEYS).data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST / HTTP/1.1"
    assert b" " not in body
    assert json.loads(body) == {"TableName": "t", "Key": {"PK": {"S": "ä"}}, "Limit": 3, "n": [{"N": "1"}]}
    assert headers["Host"] == "dynamodb.eu-west-1.amazonaws.com"
    assert headers["X-Amz-Target"] == "DynamoDB_20120810.GetItem"
    assert headers["Content-Length"] == str(len(body))
    assert headers["X-Amz-Security-Token"] == KEYS.session_token
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDSCRIPTED/")


def test_streams_have_a_name_of_their_own() -> None:
    request = service_at("http://[::1]:8000/path/", "dynamodbstreams").sign("GetRecords", {}, KEYS).data
    assert request.startswith(b"POST /path/ HTTP/1.1\r\nHost: [::1]:8000\r\n")
    assert b"\r\nX-Amz-Target: DynamoDBStreams_20120810.GetRecords\r\n" in request


def test_what_dynamodb_has_no_value_for_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="object"):
        SERVICE.sign("GetItem", {"a": object()}, KEYS)


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb",
        "ftp://host",
        "http://",
        "http://u:p@host",
        "http://host?x=1",
        "http://h h",
        "http://h:x",
        "http://[x",
    ],
)
def test_a_strange_endpoint_is_refused(url: str) -> None:
    with pytest.raises(InvalidEndpoint):
        endpoint_at(url, "us-east-1")


# What answers mean


def test_a_reply_with_the_right_checksum_is_believed() -> None:
    body = b'{"Item": {"PK": {"S": "a"}}}'
    assert decoded(200, body, x_amz_crc32=str(crc32(body))) == {"Item": {"PK": {"S": "a"}}}
    assert decoded(200, body) == {"Item": {"PK": {"S": "a"}}}


@pytest.mark.parametrize("checksum", ["1", "x", "", "-1", "٣"])
@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_with_another_checksum_may_mean_done(status: int, checksum: str) -> None:
    failure = failed(status, {"__type": "ValidationException"}, x_amz_crc32=checksum)
    assert isinstance(failure, NoAnswer)
    assert failure.sent


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a"', b"[]", b"1", b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_success_without_a_reply_may_mean_done(body: bytes) -> None:
    failure = failed(200, body)
    assert isinstance(failure, NoAnswer)
    assert failure.sent


@pytest.mark.parametrize("prefix", ["", "com.amazonaws.dynamodb.v20120810#", "com.amazon.coral.service#"])
@pytest.mark.parametrize("suffix", ["", ":http://internal.amazon.com/coral/"])
@pytest.mark.parametrize("word", ["message", "Message"])
def test_a_refusal_is_read_however_it_is_written(prefix: str, suffix: str, word: str) -> None:
    failure = failed(400, {"__type": f"{prefix}ThrottlingException{suffix}", word: "slow down"})
    assert isinstance(failure, Refused)
    assert (failure.code, failure.message, failure.by_throttling) == ("ThrottlingException", "slow down", True)


def test_a_refusal_brings_what_plans_need() -> None:
    item = {"PK": {"S": "a"}}
    condition = failed(400, {"__type": "x#ConditionalCheckFailedException", "Item": item})
    assert isinstance(condition, Refused)
    assert condition.item == item
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": item, "Message": "no"}, {}]
    canceled = failed(400, {"__type": "x#TransactionCanceledException", "CancellationReasons": reasons})
    assert isinstance(canceled, Refused)
    assert canceled.reasons == (Reason(None), Reason("ConditionalCheckFailed", item), Reason(None))


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (500, {"__type": "InternalServerError"}),
        (503, b"<html>busy</html>"),
        (400, {"__type": "InternalServerError"}),
        (408, b""),
        (302, b""),
        (400, {"__type": "TransactionCanceledException", "CancellationReasons": ["None"]}),
    ],
)
def test_whatever_is_no_answer_of_dynamodbs_may_mean_done(status: int, content: Any) -> None:
    failure = failed(status, content)
    assert isinstance(failure, NoAnswer)
    assert failure.sent


def test_throttling_is_a_refusal_whatever_the_status() -> None:
    assert isinstance(failed(503, {"__type": "ThrottlingException"}), Refused)


def test_a_refusal_of_another_server_is_quoted_but_not_at_length() -> None:
    failure = failed(403, b"<html>" + b"no " * 1000)
    assert isinstance(failure, Refused)
    assert failure.code == "403"
    assert "<html>no no" in failure.message
    assert len(failure.message) <= 200


def test_a_server_that_quotes_what_it_was_sent_gives_nothing_away() -> None:
    quoted = f"The Canonical String should have been x-amz-security-token:{KEYS.session_token}\n{'ab' * 32} {KEYS[1]}"
    for failure in (
        failed(400, {"__type": "InvalidSignatureException", "message": quoted}),
        failed(403, quoted.encode()),
        failed(500, {"__type": "InternalServerError", "message": quoted}),
    ):
        assert "Canonical String" in str(failure)
        for secret in (*KEYS, "ab" * 32):
            assert secret is not None
            assert secret not in f"{failure} {failure!r} {failure.__dict__}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(["__type", "message", "Message", "Item", "CancellationReasons", "Code"])


@settings(max_examples=300, deadline=None)
@given(st.integers(100, 599), st.one_of(st.binary(max_size=60), st.dictionaries(WORDS, JSON), JSON))
def test_whatever_is_answered_is_a_reply_a_refusal_or_no_answer(status: int, content: Any) -> None:
    with contextlib.suppress(Refused, NoAnswer):
        assert isinstance(decoded(status, content), dict)


# Clocks


@settings(max_examples=100)
@given(st.integers(0, 4_102_444_799))
def test_dates_of_replies_are_understood(epoch_s: int) -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(epoch_s)).encode()
    assert epoch_s_of_date(date) == epoch_s


@settings(max_examples=100)
@given(
    st.one_of(
        st.binary(max_size=40), st.just(b"Sun, 06 Foo 1994 08:49:37 GMT"), st.just(b"Sun, 99 Nov 1994 08:49:37 GMT")
    )
)
def test_other_dates_are_not(date: bytes) -> None:
    assert epoch_s_of_date(date) is None


def test_a_clock_that_is_off_is_noticed() -> None:
    service = service_at("https://dynamodb.eu-west-1.amazonaws.com")
    ahead = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100)).encode()
    assert service.date_skew_s is None
    request = service.sign("GetItem", {}, KEYS)
    service.decode(HttpReply(200, {b"date": ahead}, b"{}"), request)
    assert service.date_skew_s == pytest.approx(100, abs=2)
    assert not service.has_other_signature(Refused("ValidationException"), request)
    assert service.clock_offset_s == 0.0
    assert service.has_other_signature(Refused("InvalidSignatureException"), request)
    assert service.clock_offset_s == service.date_skew_s
    corrected = service.sign("GetItem", {}, KEYS)
    assert not service.has_other_signature(Refused("InvalidSignatureException"), corrected)
