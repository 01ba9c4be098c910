"""What the tests of deployments share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_deployment import CloudStage

from engines.servers import Engine


@pytest.fixture
def cloud(ministack: Engine, tmp_path: Path) -> Iterator[CloudStage]:
    """A cloud on this machine."""
    stage = CloudStage(ministack, tmp_path)
    yield stage
    stage.close()
