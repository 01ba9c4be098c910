"""Where DynamoDB is and who asks it: as botocore has it, and mostly without loading it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.scripted_server import KEYS, always, reply, serving
from zae_limiter.stores.dynamodb.transport.botocore_fallback import settings_by_botocore
from zae_limiter.stores.dynamodb.transport.credentials import CredentialCache
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.settings import ServiceSettings, discovered_settings

pytestmark = pytest.mark.usefixtures("no_credentials_here", "no_surroundings_here")

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": "secret-env"}
SERVICES = ["dynamodb", "dynamodbstreams"]


@pytest.fixture
def no_surroundings_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without proxies and certificates of its own."""
    for name in [name for name in os.environ if name.lower().endswith(("_proxy", "_ca_bundle"))]:
        monkeypatch.delenv(name)


def set_all(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def credentials_of(found: ServiceSettings) -> Credentials:
    return found.source.fetch()


SIMPLE: dict[str, tuple[dict[str, str], Target]] = {
    "region of the environment": ({"AWS_DEFAULT_REGION": "eu-central-1"}, Target()),
    "AWS_REGION wins": ({"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "us-east-1"}, Target()),
    "region of the target wins": ({"AWS_REGION": "eu-central-1"}, Target("ap-south-1")),
    "session token": ({"AWS_REGION": "eu-central-1", "AWS_SESSION_TOKEN": "token"}, Target()),
    "endpoint of the target": ({"AWS_REGION": "eu-west-1"}, Target(None, "http://far.example:8000")),
    "endpoint with a path": ({"AWS_REGION": "eu-west-1"}, Target(None, "https://far.example/a/b/")),
    "endpoint of the environment": ({"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://far.example"}, Target()),
    "endpoint of the service": (
        {
            "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL": "http://far.example",
            "AWS_ENDPOINT_URL_DYNAMODB": "http://near.example",
        },
        Target(),
    ),
    "endpoint of streams": (
        {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": "http://streams.example"},
        Target(),
    ),
    "target wins over all": (
        {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL_DYNAMODB": "http://far.example"},
        Target("us-west-2", "http://near.example:1", KEYS),
    ),
    "a local engine": ({}, Target(None, "http://127.0.0.1:8000")),
    "certificates": ({"AWS_REGION": "eu-west-1", "AWS_CA_BUNDLE": "/a", "REQUESTS_CA_BUNDLE": "/b"}, Target()),
    "other certificates": ({"AWS_REGION": "eu-west-1", "REQUESTS_CA_BUNDLE": "/b"}, Target()),
    "a proxy": ({"AWS_REGION": "eu-west-1", "HTTPS_PROXY": "http://proxy.example:3128"}, Target()),
    "a proxy that is not for this": (
        {"AWS_REGION": "eu-west-1", "HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": ".amazonaws.com"},
        Target(),
    ),
}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("simple", SIMPLE)
def test_what_is_found_at_once_is_what_botocore_finds(
    simple: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, target = SIMPLE[simple]
    set_all(monkeypatch, ENVIRONMENT | settings)
    here, there = discovered_settings(target, service), settings_by_botocore(target, service)
    assert here is not None
    assert here._replace(source=there.source) == there
    assert credentials_of(here) == credentials_of(there)


COMMERCIAL = [
    *("us-east-1", "us-west-2", "eu-north-1", "ap-southeast-7", "sa-east-1", "ca-west-1", "me-south-1", "af-south-1"),
    *("il-central-1", "mx-central-1"),
]
OTHERS = [
    *("cn-north-1", "us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "us-isof-south-1", "eu-isoe-west-1"),
    *("eusc-de-east-1", "local", "aws-global"),
]


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("region", [*COMMERCIAL, *OTHERS])
def test_regions_are_where_botocore_has_them(region: str, service: str) -> None:
    target = Target(region, None, KEYS)
    here, there = discovered_settings(target, service), settings_by_botocore(target, service)
    assert here is None or here.endpoint == there.endpoint
    assert (here is None) == (region in OTHERS)


HOSTS = [
    ({"AWS_USE_FIPS_ENDPOINT": "true"}, "us-east-1", "dynamodb-fips.us-east-1.amazonaws.com"),
    ({"AWS_USE_FIPS_ENDPOINT": "true"}, "us-gov-west-1", "dynamodb.us-gov-west-1.amazonaws.com"),
    ({"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "us-east-1", "dynamodb.us-east-1.api.aws"),
    ({}, "cn-north-1", "dynamodb.cn-north-1.amazonaws.com.cn"),
    ({"AWS_ACCOUNT_ID": "123456789012"}, "us-east-1", "123456789012.ddb.us-east-1.amazonaws.com"),
    (
        {"AWS_ENDPOINT_URL": "http://far.example", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
        "us-east-1",
        "dynamodb.us-east-1.amazonaws.com",
    ),
]


@pytest.mark.parametrize(("settings", "region", "host"), HOSTS)
def test_special_endpoints_are_left_to_botocore(
    settings: dict[str, str], region: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(monkeypatch, ENVIRONMENT | settings)
    assert discovered_settings(Target(region), "dynamodb") is None
    found = settings_by_botocore(Target(region), "dynamodb")
    assert (found.endpoint.host, found.endpoint.region) == (host, region)


FILES = {
    "fips": "[default]\nuse_fips_endpoint = true\n",
    "an endpoint": "[default]\nendpoint_url = http://far.example\n",
    "an endpoint of the service": "[default]\nservices = s\n[services s]\ndynamodb =\n  endpoint_url = http://far.example\n",
    "certificates": "[default]\nca_bundle = /a\n",
}


@pytest.mark.parametrize("file", FILES)
def test_special_files_are_left_to_botocore(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(FILES[file])
    set_all(monkeypatch, ENVIRONMENT | {"AWS_CONFIG_FILE": str(tmp_path / "config")})
    assert discovered_settings(Target("us-east-1"), "dynamodb") is None
    found = settings_by_botocore(Target("us-east-1"), "dynamodb")
    assert found.ca_bundle == ("/a" if file == "certificates" else None)
    assert found.endpoint.host == ("far.example" if "endpoint" in file else found.endpoint.host)


def test_ordinary_files_are_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[default]\nregion = us-west-2\noutput = json\n")
    set_all(monkeypatch, ENVIRONMENT | {"AWS_CONFIG_FILE": str(tmp_path / "config")})
    found = discovered_settings(Target("us-east-1"), "dynamodb")
    assert found is not None
    assert found.endpoint.region == "us-east-1"
    assert discovered_settings(Target(), "dynamodb") is None
    assert settings_by_botocore(Target(), "dynamodb").endpoint.region == "us-west-2"


@pytest.mark.parametrize(
    "settings",
    [
        {"AWS_PROFILE": "work"},
        {"AWS_DEFAULT_PROFILE": "work"},
        {"AWS_SECRET_ACCESS_KEY": ""},
        {"AWS_ACCESS_KEY_ID": ""},
        {"AWS_CREDENTIAL_EXPIRATION": "2030-01-01T00:00:00Z"},
        {"AWS_CA_BUNDLE": " "},
    ],
)
def test_what_is_not_simple_is_left_to_botocore(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, ENVIRONMENT | settings)
    assert discovered_settings(Target("us-east-1"), "dynamodb") is None


def test_a_local_engine_uses_the_credentials_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some engines keep a database for every access key."""
    local = Target(None, "http://localhost:8000")
    found = discovered_settings(local, "dynamodb")
    assert found is not None
    assert credentials_of(found) == ("local", "local", None)
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = AKIDFILE\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert discovered_settings(local, "dynamodb") is None
    assert credentials_of(settings_by_botocore(local, "dynamodb")) == ("AKIDFILE", "s", None)


def test_the_environment_is_read_again_when_its_credentials_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, ENVIRONMENT)
    found = discovered_settings(Target("us-east-1"), "dynamodb")
    assert found is not None
    cache = CredentialCache(found.source)
    before = cache.current()
    assert before is not None
    set_all(monkeypatch, {"AWS_ACCESS_KEY_ID": "AKIDNEW", "AWS_SESSION_TOKEN": "new"})
    assert cache.current() is before
    fetching = cache.refreshing()
    assert fetching is not None
    assert fetching.result(5) == cache.current() == ("AKIDNEW", "secret-env", "new")
    assert cache.differs_from(before)


# What is loaded

GRANTING = """
import asyncio, sys
from zae_limiter.stores.dynamodb.transport.protocol import Target, transports_for
transports = transports_for(Target(None, sys.argv[1]))
if sys.argv[2] == "sync":
    transport = transports.sync()
    transport.call("ListTables", {}, 5)
    transport.close()
else:
    async def main():
        transport = transports.asynchronous()
        await transport.call("ListTables", {}, 5)
        await transport.close()
    asyncio.run(main())
unwanted = {"botocore", "email", "http", "urllib3"}
print(*{name.partition(".")[0] for name in sys.modules} & unwanted)
"""


@pytest.mark.parametrize("world", ["sync", "async"])
def test_a_call_with_credentials_of_the_environment_loads_no_botocore(world: str) -> None:
    with serving(always(reply({"TableNames": []}))) as server:
        command = [sys.executable, "-W", "error", "-c", GRANTING, server.url, world]
        environment = {**os.environ, **ENVIRONMENT, "AWS_REGION": "us-east-1"}
        finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (finished.returncode, finished.stderr, finished.stdout.strip()) == (0, "", "")
    assert "Credential=AKIDENV/" in server.heard[0].headers["authorization"]
