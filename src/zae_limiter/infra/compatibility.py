"""Whether a deployment is compatible with this version of the library, and what to do if not."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from zae_limiter.infra.deployments import Deployment
from zae_limiter.infra.rollouts import CODE_KEY
from zae_limiter.infra.template import code_key
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.namespace import LAYOUT, VERSION_KEYS, layout_of, record_among
from zae_limiter.stores.dynamodb.table_client import TableClient, verb
from zae_limiter.version import __version__


class FunctionCode(StrEnum):
    """Which code a function runs: that of this version, of another, or none."""

    CURRENT = "current"
    OTHER = "other"
    NONE = "none"


class Compatibility(NamedTuple):
    """A deployment compared with this version of the library."""

    deployment: Deployment
    layout: int | None
    """Of the table; ``None`` if it was never set up."""
    code: FunctionCode
    own_version: str = __version__
    own_layout: int = LAYOUT

    @property
    def usable(self) -> bool:
        """Whether clients of this version can use the table."""
        return self.layout == self.own_layout

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do, one step after the other; nothing if everything is of this version."""
        name = self.deployment.name
        if self.layout is not None and self.layout > self.own_layout:
            return ("the table is newer than this library: install a newer one",)
        if self.layout is None:
            return (f"the table is not set up: zae-limiter deploy --name {name}",)
        steps = []
        if self.layout < self.own_layout:
            steps.append(f"the table has an older layout: stop its clients, then zae-limiter upgrade --name {name}")
        if self.code is FunctionCode.OTHER or self.deployment.version != self.own_version:
            steps.append(f"the stack is of another version: zae-limiter upgrade --name {name}")
        if self.code is FunctionCode.NONE and self.deployment.wants_function:
            steps.append(f"the function is missing: zae-limiter deploy --name {name}")
        return tuple(steps)


def function_code_of(deployment: Deployment, build: Callable[[], bytes]) -> FunctionCode:
    """Which code its function runs: a package is known by its key."""
    key = deployment.parameters.get(CODE_KEY)
    if not key:
        return FunctionCode.NONE
    return FunctionCode.CURRENT if key == code_key(build()) else FunctionCode.OTHER


class LayoutReader:
    """The layout of a table."""

    def __init__(self, client: TableClient) -> None:
        self.client = client

    @verb
    def read(self) -> Plan[int | None]:
        """The layout in its version record; ``None`` if there is no record."""
        until = yield from self.client.new_deadline()
        record = record_among((yield from self.client.get_all(VERSION_KEYS, until)).values())
        return None if record is None else layout_of(record)
