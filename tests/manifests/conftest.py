"""A namespace to apply manifests to, on every store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from engines.servers import Engine
from zae_limiter import SyncRepository

TABLES = count()
STORES = ["memory", "sqlite", "dynamodb"]


@pytest.fixture(params=STORES)
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyncRepository]:
    if request.param == "dynamodb":
        yield from on_dynamodb(request)
        return
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/limits.db"
    with SyncRepository.open(url) as opened:
        yield opened


def on_dynamodb(request: pytest.FixtureRequest) -> Iterator[SyncRepository]:
    engine: Engine = request.getfixturevalue("dynoxide")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.setenv(name, "nobody")
    url = f"dynamodb://manifests-{os.getpid()}-{next(TABLES)}?region=us-east-1&endpoint_url={engine.endpoint_url}"
    with SyncRepository.open(url, create=True, deadline=20.0) as opened:
        yield opened
        opened.delete_table()
