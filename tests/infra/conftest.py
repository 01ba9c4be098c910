"""What the tests of deployments share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_deployment import CloudRunner

from engines.servers import Engine


@pytest.fixture
def cloud(ministack: Engine, tmp_path: Path) -> Iterator[CloudRunner]:
    """A cloud on this machine."""
    runner = CloudRunner(ministack, tmp_path)
    yield runner
    runner.close()
