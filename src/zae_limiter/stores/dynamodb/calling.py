"""Calls, from threads and from event loops: carried by a transport, watched by a breaker.

The transport is made when it is first needed. While the breaker is open nobody is kept waiting, and a probe beside
later calls finds out when somebody answers again.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from zae_limiter.running.clocks import machine_clock, machine_timer
from zae_limiter.stores.dynamodb.breaker import Breaker, Passage
from zae_limiter.stores.dynamodb.checked_clock import CheckedClock
from zae_limiter.stores.dynamodb.requests import Call, DeadlineOver, NoAnswer, NobodyThere, Refused, Reply
from zae_limiter.stores.dynamodb.transport.choosing import Transports
from zae_limiter.stores.dynamodb.transport.protocol import AsyncTransport, Transport

logger = logging.getLogger("zae_limiter")

LONGEST_CALL_S = 3_600.0


class Calls:
    """Calls of one table."""

    def __init__(
        self,
        make: Transports,
        *,
        transport: Transport | None = None,
        async_transport: AsyncTransport | None = None,
        probe: tuple[str, dict[str, Any], float],
        clock: CheckedClock,
    ) -> None:
        """``probe`` is the call that finds out whether anybody is there; ``clock`` is told what replies are dated."""
        self._make = make
        self._transport = transport
        self._async_transport = async_transport
        self._question = probe
        self._breaker = Breaker()
        self._silence = ""
        self._probing: set[Any] = set()
        self._clock = clock
        self._last_skew_s: float | None = None

    def call(self, call: Call) -> Reply:
        """The reply, for a thread that waits for it."""
        seconds = _seconds_left(call)
        if self._breaker.is_open and not self._may_go():
            raise NobodyThere(self._silence)
        transport = self._transport or self.transport()
        try:
            reply = transport.call(call.operation, call.params, seconds)
        except (NoAnswer, Refused) as failure:
            self._note(failure, transport)
            raise
        self._breaker.answered()
        self._compare_clocks(transport)
        return reply

    async def call_async(self, call: Call) -> Reply:
        """The reply, for a task that awaits it."""
        seconds = _seconds_left(call)
        if self._breaker.is_open and not self._may_go(in_loop=True):
            raise NobodyThere(self._silence)
        transport = self.async_transport()
        try:
            reply = await transport.call(call.operation, call.params, seconds)
        except (NoAnswer, Refused) as failure:
            self._note(failure, transport)
            raise
        self._breaker.answered()
        self._compare_clocks(transport)
        return reply

    def begin(self, call: Call) -> Any:
        """The reply to come, of a call that is under way by now; nothing, if it has to be asked the other way."""
        begin = getattr(self.async_transport(), "begin", None)
        if begin is None or self._breaker.is_open:
            return None
        return begin(call.operation, call.params, _seconds_left(call), self._heard)

    def _heard(self, failure: NoAnswer | Refused | None) -> None:
        if failure is None:
            self._breaker.answered()
            self._compare_clocks(self._async_transport)
        else:
            self._note(failure, self._async_transport)

    def _note(self, failure: NoAnswer | Refused, transport: Any) -> None:
        """Tell the breaker: a refusal is an answer too."""
        if isinstance(failure, Refused):
            self._breaker.answered()
            self._compare_clocks(transport)
        else:
            self._silence = str(failure)
            self._breaker.silent(machine_timer())

    def _may_go(self, *, in_loop: bool = False) -> bool:
        passage = self._breaker.passage(machine_timer())
        if passage is Passage.STOP_AND_PROBE:
            if in_loop:
                self._probe_in_loop()
            else:
                threading.Thread(target=self._probe, name="zae-limiter-probe", daemon=True).start()
        return passage is Passage.GO

    def _probe(self) -> None:
        """Ask whether anybody is there; a refusal is an answer too."""
        try:
            self.transport().call(*self._question)
        except NoAnswer:
            return
        except Refused:
            pass
        self._breaker.answered()

    def _probe_in_loop(self) -> None:
        import asyncio

        async def probe() -> None:
            try:
                await self.async_transport().call(*self._question)
            except NoAnswer:
                return
            except Refused:
                pass
            self._breaker.answered()

        task = asyncio.get_running_loop().create_task(probe(), name="zae-limiter-probe")
        self._probing.add(task)
        task.add_done_callback(self._probing.discard)

    def _compare_clocks(self, transport: Any) -> None:
        """Replies carry the time, to the second. A machine's clock that is far off is reported once, and corrected."""
        skew = getattr(transport, "last_date_skew_s", None)
        if skew is not None and skew is self._last_skew_s:  # the reply is of the second that was looked at last
            return
        self._last_skew_s = skew
        error = self._clock.hear(None if skew is None else round(skew * 1000), machine_clock(), machine_timer())
        if error is not None:
            logger.warning(
                "this machine's clock is %.0f s off by DynamoDB's; correcting it for the buckets", error / 1000
            )

    def transport(self) -> Transport:
        """The transport for threads."""
        if self._transport is None:
            self._transport = self._make.sync()
        return self._transport

    def async_transport(self) -> AsyncTransport:
        """The transport for event loops."""
        if self._async_transport is None:
            self._async_transport = self._make.asynchronous()
        return self._async_transport

    def close(self) -> None:
        """Close the connections of threads."""
        if self._transport is not None:
            self._transport.close()

    async def aclose(self) -> None:
        """Close the connections of this loop."""
        import asyncio

        for task in [task for task in self._probing if task.get_loop() is asyncio.get_running_loop()]:
            task.cancel()
            await asyncio.wait((task,))
        if self._async_transport is not None:
            await self._async_transport.close()


def _seconds_left(call: Call) -> float:
    left = (call.give_up_at - machine_timer()) / 1000
    if left <= 0:
        raise DeadlineOver
    return left if left < LONGEST_CALL_S else LONGEST_CALL_S
