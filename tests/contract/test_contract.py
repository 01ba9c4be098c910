"""Every row of the contract, on every store, in both worlds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing.contract import CASES, Case, Mode, OpenStore, play


def memory(folder: Path) -> OpenStore:
    store = MemoryStore()
    return lambda: store


def sqlite(folder: Path) -> OpenStore:
    return lambda: SqliteStore(str(folder / "limits.db"))


STORES: dict[str, Callable[[Path], OpenStore]] = {
    "memory": memory,
    "sqlite": sqlite,
}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_contract_is_kept(case: Case, store: str, mode: Mode, tmp_path: Path) -> None:
    play(case, mode, STORES[store](tmp_path))
