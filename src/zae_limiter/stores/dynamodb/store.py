"""The store: every namespace of one table, and the table itself."""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.stores.dynamodb.answering import LOCAL_SETTINGS, AnsweringTable
from zae_limiter.stores.dynamodb.gauge import PARTITION_WCU
from zae_limiter.stores.dynamodb.marks import Marks
from zae_limiter.stores.dynamodb.plans.asking import TTL_MARGIN_S
from zae_limiter.stores.dynamodb.plans.audit import AuditVerbs
from zae_limiter.stores.dynamodb.plans.configs import ConfigVerbs
from zae_limiter.stores.dynamodb.plans.entities import EntityVerbs
from zae_limiter.stores.dynamodb.plans.settling import SettlingPlans
from zae_limiter.stores.dynamodb.plans.usage import UsageVerbs
from zae_limiter.stores.dynamodb.table import TableVerbs
from zae_limiter.stores.dynamodb.transport.choosing import How
from zae_limiter.stores.dynamodb.transport.protocol import AsyncTransport, Target, Transport
from zae_limiter.stores.protocol import Shortcut


class DynamoSpace(EntityVerbs, ConfigVerbs, AuditVerbs, UsageVerbs, SettlingPlans):
    """One namespace of the table."""

    shortcuts: Mapping[tuple[str, str], Shortcut] = {}  # none: there is always a call to wait for


class DynamoStore(AnsweringTable, TableVerbs):
    """Every namespace of one table."""

    def __init__(
        self,
        table: str,
        target: Target = LOCAL_SETTINGS,
        *,
        deadline: float = 2.0,
        config_cache_ttl: float = 60.0,
        transport: Transport | None = None,
        async_transport: AsyncTransport | None = None,
        how: How = "own",
        marks: Marks | None = None,
        ttl_margin_s: int = TTL_MARGIN_S,
        coalesce: bool = True,
        wcu: int = PARTITION_WCU,
    ) -> None:
        """As :class:`AnsweringTable`. ``coalesce``: join what this process writes to one bucket at the same time."""
        super().__init__(
            table,
            target,
            deadline=deadline,
            transport=transport,
            async_transport=async_transport,
            how=how,
            marks=marks,
            ttl_margin_s=ttl_margin_s,
            wcu=wcu,
        )
        self._coalesce = coalesce
        self.identity = ("dynamodb", target.endpoint_url, target.region, table)
        self._config_ttl_ms = round(config_cache_ttl * 1000)
        self._spaces: dict[tuple[str, bool], DynamoSpace] = {}

    def __repr__(self) -> str:
        return f"DynamoStore({self.asking.table!r})"

    def space(self, namespace: str, *, corrected: bool = False) -> DynamoSpace:
        place = (namespace, corrected)
        space = self._spaces.get(place)
        if space is None:
            space = DynamoSpace(self.asking, namespace, corrected=corrected, config_ttl_ms=self._config_ttl_ms)
            space.coalesce = self._coalesce
            space = self._spaces.setdefault(place, space)
        return space
