"""A table on every engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from old_tables import OldTable, old_table

from engines.servers import Engine


@pytest.fixture
def table(engine: Engine) -> Iterator[OldTable]:
    with old_table(engine) as table:
        yield table
