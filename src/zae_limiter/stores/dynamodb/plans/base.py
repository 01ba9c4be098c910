"""One namespace of the table, as all its plans see it."""

from __future__ import annotations

from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.images import Images
from zae_limiter.stores.dynamodb.keys import namespace_key, version_key
from zae_limiter.stores.dynamodb.layout import check_layout
from zae_limiter.stores.dynamodb.plans.asking import Asking, Window
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.protocol import Scope


class SpaceBase:
    """What every plan of a namespace has at hand, and what one kind of plan asks of another."""

    def __init__(self, asking: Asking, namespace: str, *, corrected: bool) -> None:
        self.asking = asking
        self.marks = asking.marks
        self.namespace = namespace
        self.images = Images(corrected=corrected)
        self._ns: str | None = None
        self._layout_fits = False

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
        registered = namespace_key(self.namespace)
        if self._layout_fits:
            return self.live_ns((yield from self.asking.get(registered, window)))
        items = yield from self.asking.get_all([registered, version_key()], window)
        check_layout(self.asking.table, items.get(version_key()))
        self._layout_fits = True
        return self.live_ns(items.get(registered))

    def live_ns(self, item: Item | None) -> str:
        """The id in a namespace's record, unless there is none or it is deleted."""
        if item is None or "deleted_at" in item:
            self.forget_everything()
            raise NamespaceNotFoundError(self.namespace, deleted=item is not None)
        ns: str = item["ns"]["S"]
        if ns != self._ns:
            self.forget_everything()
            self._ns = ns
        return ns

    def forget_everything(self) -> None:
        """Nothing that was read holds any more."""
        self._ns = None
        self.images.forget_all()

    # What changes of configs and entities ask of the buckets (see ``rewriting``)

    def propagate(self, ns: str, scope: Scope, now: int) -> Plan[None]:
        """Let the live buckets that a changed config concerns follow it."""
        raise NotImplementedError

    def rewrite_buckets_of(self, ns: str, entity_id: str, now: int) -> Plan[None]:
        """Let the live buckets of a changed entity notice."""
        raise NotImplementedError

    def rewrite_buckets_below(self, ns: str, entity_id: str, now: int, *, scope: Scope | None = None) -> Plan[None]:
        """Let the live buckets notice from which draws passed, or pass, by a changed entity without limits.

        ``scope``: the level of it that got limits; else the entity itself has changed.
        """
        raise NotImplementedError

    def drop_buckets_of(self, ns: str, entity_id: str, now: int) -> Plan[int]:
        """Remove every bucket of an entity; how many there were."""
        raise NotImplementedError
