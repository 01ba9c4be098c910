"""The pulse, as callers read and write it. Written once, as plans."""

from __future__ import annotations

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.pulse import Pulse
from zae_limiter.pulses.pulse_text import merge
from zae_limiter.repository.core import Core
from zae_limiter.repository.pulse_writer import MOST_PULSES
from zae_limiter.running.plan import READ_CLOCK, Plan


class PulseVerbs:
    """The methods on pulses."""

    __slots__ = ()

    _core: Core

    def _get_pulse(self) -> Plan[Pulse]:
        """Who is refused, near a limit and in debt, the worst first, as the live processes tell it that have a pulse.

        It reads one small text per process, however many entities there are. Numbers are up to ten seconds old.
        """
        core = self._core
        now = yield from READ_CLOCK
        texts = yield from core.call("pulses", core.space.pulses(MOST_PULSES, now))
        return merge(texts, now)

    def _write_pulse(self) -> Plan[None]:
        """Write the pulse of this process now; else it is written every ten seconds, and on closing.

        For a process that does not run in between. Raises ``ValidationError`` if it was opened without a pulse.
        """
        core = self._core
        if core.pulse_writer is None:
            raise ValidationError("pulse", False, "must be True when the limiter is opened, for it to have a pulse")
        yield from core.pulse_writer.write(core.namespace)
