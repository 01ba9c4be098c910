"""What the tests against DynamoDB's engines share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path

import botocore.session
import pytest

from engines.servers import Engine
from support.transports import Ask, sync_asking, table_with_stream, target_of

NUMBERS = count()


@pytest.fixture(scope="session", autouse=True)
def botocore_reads_its_own_files_once() -> Iterator[None]:
    """Sessions share what botocore has read of its package: megabytes of JSON, hundreds of sessions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
        yield


@pytest.fixture
def no_credentials_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nothing is configured for AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session")
def asking_engine(engine: Engine) -> Iterator[Ask]:
    with sync_asking(target_of(engine)) as ask:
        yield ask


@pytest.fixture
def table(asking_engine: Ask) -> Iterator[str]:
    """An empty table with a stream, on the engine of the test."""
    name = f"transport-{os.getpid()}-{next(NUMBERS)}"
    asking_engine("CreateTable", table_with_stream(name))
    yield name
    asking_engine("DeleteTable", {"TableName": name})
