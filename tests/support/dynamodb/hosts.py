"""Processes on a table of the model whose machines have clocks of their own, checked by the dates of replies."""

from __future__ import annotations

from typing import Any

from support.dynamodb.scripted_plans import Ended, Fate, Script
from support.dynamodb.scripted_tables import Client, Table
from zae_limiter.running.plan import Plan, ReadClock, Request
from zae_limiter.stores.dynamodb.requests import Call, CheckedClock, NoAnswer, ReadMachineTime

DAY_MS = 86_400_000


class Host(Client):
    """A process whose machine's clock is off by so many milliseconds."""

    def __init__(self, table: Table, off: int = 0, *, corrected: bool = True) -> None:
        super().__init__(table, f"{next(table._numbers):08x}", corrected, 60.0)
        self.off = off
        self.clock = CheckedClock()
        self.is_dated = True
        """Whether replies have a date that says something new."""

    def wall(self) -> int:
        return self.table.now + self.off

    def run(self, plan: Plan[Any], *, to_the_end: bool = False) -> Any:
        ended = self.ended(plan, to_the_end=to_the_end)
        if ended.error is not None:
            raise ended.error
        return ended.result

    def ended(self, plan: Plan[Any], *, to_the_end: bool = False) -> Ended:
        return OnHost(self).run(plan, to_the_end=to_the_end)

    def calls(self, plan: Plan[Any]) -> list[str]:
        """The operations of a plan that ends well."""
        ended = self.ended(plan)
        assert ended.error is None, ended.error
        return ended.operations

    def pass_time(self, milliseconds: int) -> None:
        self.table.now += milliseconds
        self.table.timer += milliseconds


class OnHost(Script):
    """Answers plans by the clock of a host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.table)
        self.host = host

    def _answer(self, request: Request[Any]) -> Any:
        host, timer = self.host, self.table.timer
        if isinstance(request, ReadMachineTime):
            return host.clock.machine_time(host.wall(), timer)
        return host.wall() if isinstance(request, ReadClock) else super()._answer(request)

    def _fulfil(self, call: Call, number: int, fate: Fate | None) -> Any:
        reply = super()._fulfil(call, number, fate)
        if not isinstance(reply, NoAnswer) and self.host.is_dated:
            self.host.clock.hear(-self.host.off, self.host.wall(), self.table.timer)
        return reply
