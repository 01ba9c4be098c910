"""Signatures are those of botocore, whatever is signed, and nothing secret is ever shown."""

from __future__ import annotations

import datetime
import string
from typing import Any

import pytest
from botocore import auth
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter.stores.dynamodb.transport.protocol import Credentials
from zae_limiter.stores.dynamodb.transport.settings import endpoint_at
from zae_limiter.stores.dynamodb.transport.signing import CONTENT_TYPE, BadCredentials, Signer

WORD = st.text(string.ascii_letters + string.digits, min_size=1, max_size=20)
SECRET = st.text(string.ascii_letters + string.digits + "/+=_-", min_size=1, max_size=60)
HOSTS = st.one_of(
    st.sampled_from(["dynamodb.us-east-1.amazonaws.com", "127.0.0.1", "localhost", "[::1]", "DynamoDB.Example.COM"]),
    st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?\.[a-z]{2,5}", fullmatch=True),
)
PORTS = st.one_of(st.just(""), st.integers(1, 65535).map(lambda port: f":{port}"), st.sampled_from([":80", ":443"]))
PATHS = st.one_of(
    st.sampled_from(["", "/", "/a/b/", "//a//b", "/a/../b", "/./a", "/..", "/a/b/..", "/a/."]),
    st.text(string.ascii_letters + string.digits + "-._~/()!$&'*+,;=:@%", max_size=20).map(lambda text: f"/{text}"),
)
URLS = st.builds("{}://{}{}{}".format, st.sampled_from(["http", "https"]), HOSTS, PORTS, PATHS)
CREDENTIALS = st.builds(Credentials, WORD, SECRET, st.one_of(st.none(), SECRET))
SECONDS = st.integers(0, 4_102_444_800)
BODIES = st.one_of(st.binary(max_size=2000), st.text(max_size=500).map(str.encode))
REGIONS = st.one_of(
    st.sampled_from(["us-east-1", "us-gov-west-1", "cn-north-1"]),
    st.from_regex(r"[a-z]{2}-[a-z]{1,20}-[0-9]", fullmatch=True),
)


def signed_by_botocore(
    url: str, region: str, target: str, body: bytes, credentials: Credentials, epoch_s: int
) -> tuple[str, str]:
    request = AWSRequest("POST", url, data=body, headers={"Content-Type": CONTENT_TYPE, "X-Amz-Target": target})
    known: Any = BotocoreCredentials(*credentials)
    now = auth.get_current_datetime
    auth.get_current_datetime = lambda *_, **__: datetime.datetime.fromtimestamp(epoch_s, datetime.UTC)
    try:
        SigV4Auth(known, "dynamodb", region).add_auth(request)
    finally:
        auth.get_current_datetime = now
    return request.headers["X-Amz-Date"], request.headers["Authorization"]


@settings(max_examples=500, deadline=None)
@given(URLS, REGIONS, WORD, BODIES, CREDENTIALS, SECONDS)
def test_a_signature_equals_botocores(
    url: str, region: str, operation: str, body: bytes, credentials: Credentials, epoch_s: int
) -> None:
    place = endpoint_at(url, region)
    target = f"DynamoDB_20120810.{operation}"
    signer = Signer(place.host_header, place.path, region)
    expected = signed_by_botocore(url, region, target, body, credentials, epoch_s)
    assert signer.sign(target, body, credentials, epoch_s) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(WORD, BODIES, st.integers(0, 1), st.integers(-90_000, 90_000)), min_size=2, max_size=8))
def test_one_signer_signs_calls_of_many_days_and_users_in_any_order(calls: list[tuple[str, bytes, int, int]]) -> None:
    users = [Credentials("AKID1", "one"), Credentials("AKID2", "two", "token")]
    url, region = "https://dynamodb.eu-west-1.amazonaws.com", "eu-west-1"
    signer = Signer("dynamodb.eu-west-1.amazonaws.com", "/", region)
    for operation, body, user, offset in calls:
        target, epoch_s = f"DynamoDBStreams_20120810.{operation}", 1_700_000_000 + offset
        expected = signed_by_botocore(url, region, target, body, users[user], epoch_s)
        assert signer.sign(target, body, users[user], epoch_s) == expected


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials("AKID\n", "hush-hush"),
        Credentials("AKID", "hush-hush", "hush hush"),
        Credentials("AKID", "hush-hush", "hush\r\nX-Evil: 1"),
        Credentials("ÄKID", "hush-hush"),
    ],
)
def test_credentials_that_no_header_can_carry_are_refused_and_not_shown(credentials: Credentials) -> None:
    with pytest.raises(BadCredentials) as caught:
        Signer("host", "/", "us-east-1").sign("DynamoDB_20120810.GetItem", b"{}", credentials, 0)
    assert "hush" not in str(caught.value)
    assert "KID" not in str(caught.value)


def test_nothing_that_signs_shows_what_it_signs_with() -> None:
    credentials = Credentials("AKIDEXAMPLE", "hush-hush", "hush-token")
    signer = Signer("host", "/", "us-east-1")
    signature = signer.sign("DynamoDB_20120810.GetItem", b"{}", credentials, 0)
    shown = f"{credentials!r} {credentials} {signer!r} {signature!r} {signature} {signer._key!r}"
    assert "hush" not in shown
    assert signature.authorization[-64:] not in shown
