"""With what botocore's clients are made, in both worlds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.stores.dynamodb.transport.protocol import Target

CONNECTIONS: Final = 50

STREAMS: Final = frozenset({"DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"})

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})
LOCAL_REGION: Final = "us-east-1"
LOCAL_CREDENTIALS: Final = ("local", "local")
"""An engine on this machine asks for some signature, not for a right one."""


class MissingExtra(ZAELimiterError, ImportError):
    """The packages that speak to DynamoDB are not installed."""

    def __init__(self, name: str | None) -> None:
        super().__init__(f"the DynamoDB store needs {name}: pip install 'zae-limiter[dynamodb]'")


def service_of(operation: str) -> str:
    """The service that has an operation. Streams are one of their own, at the same endpoint."""
    return "dynamodbstreams" if operation in STREAMS else "dynamodb"


def is_local(target: Target) -> bool:
    """Whether it is an engine on this machine."""
    return target.endpoint_url is not None and urlsplit(target.endpoint_url).hostname in LOCAL_HOSTS


def region_named(target: Target, environment: Mapping[str, str] = os.environ) -> str | None:
    """The region that the target or the environment names. (``AWS_REGION`` is what AWS's other libraries read.)"""
    return target.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None


def config_of(target: Target, *, connect_seconds: float, read_seconds: float) -> dict[str, Any]:
    """How a client behaves: one try, because plans decide what is repeated; no second look at what plans wrote."""
    options: dict[str, Any] = {
        "connect_timeout": connect_seconds,
        "read_timeout": read_seconds,
        "max_pool_connections": CONNECTIONS,
        "parameter_validation": False,
        "retries": {"mode": "standard", "total_max_attempts": 1},
        "tcp_keepalive": True,
    }
    if is_local(target):
        options["proxies"] = {}
    return options


def address_of(target: Target, session: Any) -> dict[str, Any]:
    """Where a client speaks to, and as whom."""
    region = region_named(target) or session.get_config_variable("region")
    address: dict[str, Any] = {
        "region_name": region or (LOCAL_REGION if is_local(target) else None),
        "endpoint_url": target.endpoint_url,
    }
    if target.credentials is not None:
        address["aws_access_key_id"] = target.credentials.access_key
        address["aws_secret_access_key"] = target.credentials.secret_key
        address["aws_session_token"] = target.credentials.session_token
    return address


def prepare(target: Target, session: Any) -> None:
    """Make a new session ready. It asks no metadata service on behalf of an engine on this machine."""
    if is_local(target):
        session.set_config_variable("metadata_service_num_attempts", 0)


def methods_of(client: Any) -> Mapping[str, Any]:
    """The methods of a client, by the names of their operations."""
    return {operation: getattr(client, method) for method, operation in client.meta.method_to_api_mapping.items()}
