"""One namespace of the table, as all its plans see it."""

from __future__ import annotations

from collections.abc import Callable

from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.images import Images
from zae_limiter.stores.dynamodb.items import ns_in
from zae_limiter.stores.dynamodb.keys import namespace_key, version_key
from zae_limiter.stores.dynamodb.layout import check_layout
from zae_limiter.stores.dynamodb.plans.asking import Asking, Window
from zae_limiter.stores.dynamodb.requests import READ_MACHINE_TIME, Item


class Namespace:
    """A namespace as one client knows it: its id, and what is remembered of its buckets."""

    def __init__(self, asking: Asking, namespace: str, *, corrected: bool) -> None:
        self.asking = asking
        self.marks = asking.marks
        self.name = namespace
        self.images = Images(corrected=corrected)
        self._ns: str | None = None
        self._layout_fits = False
        self._when_forgotten: list[Callable[[], None]] = []

    def when_forgotten(self, forget: Callable[[], None]) -> None:
        """Call that too when nothing that was read holds any more."""
        self._when_forgotten.append(forget)

    @property
    def known_ns(self) -> str | None:
        """The id of the namespace, if it was read."""
        return self._ns

    def ns(self, until: Window | None = None) -> Plan[str]:
        """The id of the namespace; read once."""
        if self._ns is not None:
            return self._ns
        return (yield from self.checked_ns(until))

    def checked_ns(self, until: Window | None = None) -> Plan[str]:
        """The id of the namespace, surely not deleted as of now.

        The first time the table's version is read along with it, and data of another layout refused.
        """
        window = until or (yield from self.asking.window())
        registered = namespace_key(self.name)
        if self._layout_fits:
            return self.live_ns((yield from self.asking.get(registered, window)))
        items = yield from self.asking.get_all([registered, version_key()], window)
        check_layout(self.asking.table, items.get(version_key()))
        self._layout_fits = True
        return self.live_ns(items.get(registered))

    def checked_time(self, now: int, until: Window) -> Plan[tuple[int, Window]]:
        """Bucket time for what was asked at ``now``, and the window, by a clock that a reply has confirmed.

        Whoever asks has just read something. Most of the time the clock was confirmed before that; if not, time is
        taken now. If even that reply said nothing new, because the clock was set since, one more is asked for.
        """
        if not until.checked:
            time = yield from READ_MACHINE_TIME
            if not time.checked:
                yield from self.checked_ns(until)
                time = yield from READ_MACHINE_TIME
            until = until._replace(epoch_s=time.epoch_s, clock_error_ms=time.clock_error_ms, checked=True)
            if self.images.uses_machine_clock:
                now = yield from READ_CLOCK
        self.images.correct_by(until.clock_error_ms)
        return self.images.corrected(now), until

    def live_ns(self, item: Item | None) -> str:
        """The id in a namespace's record, unless there is none or it is deleted."""
        if item is None or "deleted_at" in item:
            self.forget_everything()
            raise NamespaceNotFoundError(self.name, deleted=item is not None)
        ns = ns_in(item)
        if ns != self._ns:
            self.forget_everything()
            self._ns = ns
        return ns

    def forget_everything(self) -> None:
        """Nothing that was read holds any more."""
        self._ns = None
        self.images.forget_all()
        for forget in self._when_forgotten:
            forget()
