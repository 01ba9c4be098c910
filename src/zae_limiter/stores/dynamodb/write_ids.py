"""Ids that tell one write, one bucket's life, one client from another. Unique without asking the table.

A process that is copied would go on with the same name and the same count, and its copies would take each other's
writes for their own. So a name is drawn anew in the child of a fork, when a runtime says that it was restored from a
snapshot (:func:`renew_identity`), and when the wall clock has moved against the timer, as on a machine that was
stopped and goes on later.
"""

from __future__ import annotations

import os
import secrets
from functools import lru_cache
from itertools import count
from time import monotonic, time
from weakref import WeakSet

STEP_S = 1.0
"""How far the wall clock moves against the timer before this may be a copy: more than it is ever slewed by."""

_ALL: WeakSet[WriteIds] = WeakSet()

BROUGHT_BACK = "!"
"""Ends the id of a write that brought a bucket back from the future: what older ids say of the time is void."""


class WriteIds:
    """One client's source of ids: a name of its own, and a count."""

    __slots__ = ("__weakref__", "_client", "_count", "_stopped_for")

    def __init__(self, client: str | None = None) -> None:
        self._begin(client or secrets.token_hex(5))
        _ALL.add(self)

    def _begin(self, client: str) -> None:
        self._stopped_for = time() - monotonic()
        self._client = client
        self._count = count(1)

    def renew(self) -> None:
        """Go on under another name."""
        self._begin(secrets.token_hex(5))

    def write_id(self, now: int) -> str:
        """Of one write. It begins with the write's ``now``, by which other clients tell how late it is."""
        if not -STEP_S < time() - monotonic() - self._stopped_for < STEP_S:
            self.renew()
        return f"{now:x}.{self._client}{next(self._count):x}"

    def incarnation(self) -> str:
        """Of one life of a bucket."""
        if not -STEP_S < time() - monotonic() - self._stopped_for < STEP_S:
            self.renew()
        return f"{self._client}{next(self._count):x}"

    token = incarnation
    """Of one transaction."""

    def number(self) -> int:
        """To tell audit events of one millisecond apart, in their order."""
        if not -STEP_S < time() - monotonic() - self._stopped_for < STEP_S:
            self.renew()
        return next(self._count) << 40 | int(self._client, 16) & 0xFF_FFFF_FFFF


@lru_cache(1024)
def write_id_time(write_id: str) -> int:
    """The ``now`` a write was computed for."""
    head = write_id.partition(".")[0]
    try:
        return int(head, 16)
    except ValueError:
        return 0


def renew_identity() -> None:
    """Say that this process may be one of several copies, restored from one snapshot of a machine or a process.

    Every store of it goes on under a name of its own. The child of a fork, and Lambda's SnapStart, need no call.
    """
    for write_ids in list(_ALL):
        write_ids.renew()


def _renew_in_copies() -> None:
    """Renew it wherever it is said that this process is a copy: after a fork, and by Lambda's runtime."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew_identity)
    try:
        from snapshot_restore_py import register_after_restore  # type: ignore[import-not-found]
    except ImportError:
        return
    register_after_restore(renew_identity)


_renew_in_copies()
