"""Copies of one process, restored from one snapshot: they do not take each other's writes for their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import zae_limiter
from support.dynamodb.draw_scenarios import hierarchy
from support.dynamodb.scripted_tables import Client, Table
from zae_limiter.stores.dynamodb import write_ids
from zae_limiter.stores.dynamodb.write_ids import WriteIds

NAME = "00c0ffee00"
MANY = 200


def copies(table: Table) -> list[Client]:
    """Two processes that know the same, and go on under the same name."""
    both = [table.client(), table.client()]
    for client in both:
        assert client.takes("key", {"rpd": 1})
    for client in both:
        client.store.client.write_ids._begin(NAME)
    return both


def granted_in_turn(clients: list[Client]) -> int:
    return sum(client.takes("key", {"rpd": 1}) for _ in range(MANY) for client in clients)


def stopped_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_ids, "time", lambda: time.time() + 2)


def told(monkeypatch: pytest.MonkeyPatch) -> None:
    zae_limiter.renew_identity()


@pytest.mark.parametrize("restored", [stopped_for_a_while, told])
def test_copies_admit_no_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, restored: Callable[[pytest.MonkeyPatch], None]
) -> None:
    table = hierarchy(1)
    clients = copies(table)
    left = table.levels("key")["rpd"] // 1_000
    restored(monkeypatch)
    assert granted_in_turn(clients) == left


def test_without_a_new_name_copies_would_admit_more() -> None:
    """What the others prevent: else they would prove nothing."""
    table = hierarchy(1)
    clients = copies(table)
    left = table.levels("key")["rpd"] // 1_000
    assert granted_in_turn(clients) > left


@pytest.mark.parametrize("step", [-2.0, 2.0, 3_600.0])
def test_every_kind_of_write_id_is_new_after_the_clock_moved(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    kinds: list[Callable[[WriteIds], object]] = [
        lambda source: source.write_id(1),
        WriteIds.incarnation,
        WriteIds.token,
        WriteIds.number,
    ]
    for kind in kinds:
        one, other = WriteIds(NAME), WriteIds(NAME)
        assert kind(one) == kind(other)
        with monkeypatch.context() as patched:
            patched.setattr(write_ids, "time", lambda: time.time() + step)
            assert kind(one) != kind(other)


def test_a_clock_that_is_slewed_changes_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    source = WriteIds(NAME)
    monkeypatch.setattr(write_ids, "time", lambda: time.time() + 0.5)
    assert source.incarnation().startswith(NAME)


def test_the_runtime_of_lambda_is_listened_to(tmp_path: Path) -> None:
    (tmp_path / "snapshot_restore_py.py").write_text("told = []\nregister_after_restore = told.append\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import snapshot_restore_py\n"
        "from zae_limiter.stores.dynamodb.write_ids import WriteIds\n"
        f"one, other = WriteIds({NAME!r}), WriteIds({NAME!r})\n"
        "assert one.write_id(1) == other.write_id(1)\n"
        "for after_restore in snapshot_restore_py.told: after_restore()\n"
        "assert one.write_id(1) != other.write_id(1)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
