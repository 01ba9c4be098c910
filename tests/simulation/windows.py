"""The most that was granted in any window, by rational arithmetic and without a bucket.

With ``S`` the sum of what was taken, a window from the write ``i`` to ``j`` holds ``S(j) - S(i-1)``, and may hold
``bx + (t(j) - t(i)) * ra / rp`` (and one step more, of a calendar). The smallest ``S(i-1) * rp - t(i) * ra`` so far
decides for all ``i``.
"""

from __future__ import annotations

from simulation.reference import Steps, Terms


class Window:
    """All windows of one limit of one bucket, or of one shard of it."""

    __slots__ = ("least", "taken", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.taken = 0
        self.least: int | None = None

    def excess(self, t: int, delta: int) -> int:
        """How many millitokens too many the worst window up to this write holds."""
        _, ra, rp, _, shards, _ = self.terms
        step = -(-ra // shards) if isinstance(self.terms, Steps) else 0  # a boundary may lie just behind the start
        start = self.taken * rp * shards - t * ra
        if self.least is None or start < self.least:
            self.least = start
        self.taken += delta
        return (
            (self.taken * rp * shards - t * ra - self.least) // (rp * shards) - self.terms.bx - min(shards, 2) - step
        )


class WindowOfAll:
    """All windows of one limit over all shards of its bucket.

    Each shard has its own order of moments; together they may be as far out of order as clocks are wrong and writes
    are late. ``latest`` is the last moment seen, and ``disorder`` by how much any was behind it.
    """

    __slots__ = ("disorder", "latest", "least", "step", "taken", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms.whole
        self.step = terms.ra if isinstance(terms, Steps) else 0
        self.taken = 0
        self.latest = 0
        self.disorder = 0
        self.least: int | None = None

    def excess(self, t: int, delta: int, shards: int) -> int:
        """How many millitokens too many the worst window up to this write holds."""
        burst, ra, rp = self.terms
        self.latest = latest = max(self.latest, t)
        self.disorder = max(self.disorder, latest - t)
        start = self.taken * rp - latest * ra
        if self.least is None or start < self.least:
            self.least = start
        self.taken += delta
        return (self.taken * rp - latest * ra - self.least - self.disorder * ra) // rp - burst - shards - self.step
