"""Pulses: one text per process, gone when it has expired."""

from __future__ import annotations

from zae_limiter.stores.embedded.tables import Tables, Transacting, reads, writes


class PulseVerbs(Transacting):
    """The verbs on pulses."""

    @writes
    def put_pulse(self, tables: Tables, process: str, text: str, expires_at: int, now: int) -> None:
        tables.put_pulse(process, text, expires_at, now)

    @reads
    def pulses(self, tables: Tables, most: int, now: int) -> tuple[str, ...]:
        return tuple(tables.pulses(most, now))
