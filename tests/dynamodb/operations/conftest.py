"""What the tests of operations share: a table on dynoxide, and a store on it whose plans are run step by step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.servers import Engine
from support.dynamodb.plan_driver import World, asking_of, world_by
from support.transports import Ask


@pytest.fixture(scope="module")
def ask(dynoxide: Engine) -> Iterator[Ask]:
    with asking_of(dynoxide) as ask:
        yield ask


@pytest.fixture
def world(ask: Ask) -> Iterator[World]:
    with world_by(ask) as world:
        yield world
