"""The store: every namespace of one table, and the table itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from zae_limiter.stores.dynamodb.batching import BatchingWriter
from zae_limiter.stores.dynamodb.bucket_write import BucketWriter
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.acquire import Acquire, AcquireParts
from zae_limiter.stores.dynamodb.operations.audit import AuditTrail
from zae_limiter.stores.dynamodb.operations.config import AccessSwitches, Configs
from zae_limiter.stores.dynamodb.operations.denials import DenialCounts
from zae_limiter.stores.dynamodb.operations.entities import Entities
from zae_limiter.stores.dynamodb.operations.leases import LeaseRecords
from zae_limiter.stores.dynamodb.operations.namespaces import Namespaces, Table
from zae_limiter.stores.dynamodb.operations.operator_changes import Lowering, OperatorChanges
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.operations.settle import Settlements, SettlementWriter
from zae_limiter.stores.dynamodb.operations.slots import Renewals
from zae_limiter.stores.dynamodb.operations.status import Pulses, StatusReader
from zae_limiter.stores.dynamodb.operations.usage import UsageProofs, UsageWindows
from zae_limiter.stores.dynamodb.performer import LOCAL_SETTINGS, RequestPerformer
from zae_limiter.stores.dynamodb.table_client import TTL_MARGIN_S, TableClient
from zae_limiter.stores.dynamodb.transport.protocol import AsyncTransport, Target, Transport, TransportKind
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.dynamodb.write_load import PARTITION_WCU
from zae_limiter.stores.protocol import FastPath


class DynamoSpace:
    """One namespace of the table: the parts that work on it, and each verb of the waist with the part that has it."""

    fast_paths: Mapping[tuple[str, str], FastPath] = {}  # none: there is always a call to wait for

    slot_pauses_ms = (100, 1_000)
    claims_for_ms = None

    def __init__(
        self,
        client: TableClient,
        namespace: str,
        *,
        corrected: bool = False,
        config_ttl_ms: int,
        coalesce: bool = True,
    ) -> None:
        """``corrected``: bucket time follows other clocks. ``coalesce``: see :class:`BatchingWriter`."""
        self.client = client
        self.namespace = Namespace(client, namespace, corrected=corrected)
        self.cache = self.namespace.cache
        self.resolver = ConfigResolver(self.namespace, config_ttl_ms)
        self.writer = BucketWriter(self.namespace)
        self.batching = BatchingWriter(self.writer, coalesce=coalesce)
        self.propagation = Propagation(self.namespace, self.resolver, self.writer)
        settling = SettlementWriter(self.namespace, self.resolver, self.writer, self.batching, self.propagation)
        leases = LeaseRecords(self.namespace, self.writer, settling)
        acquiring = AcquireParts(
            self.namespace,
            client,
            self.cache,
            client.write_ids,
            self.resolver,
            self.writer,
            self.batching,
            self.propagation,
            settling,
            leases,
        )
        switches = AccessSwitches(self.namespace, self.resolver.watch, self.propagation)
        looks = StatusReader(self.namespace, self.resolver, self.writer, switches)
        settlements = Settlements(self.namespace, settling, leases)
        operators = OperatorChanges(self.namespace, leases, looks, self.propagation)
        denials = DenialCounts(self.namespace, settling)
        entities = Entities(self.namespace, self.propagation)
        configs = Configs(self.namespace, self.propagation)

        self.draw = partial(Acquire.run, acquiring)
        self.settle = settlements.settle
        self.lease_record = leases.lease_record
        self.lease_records = leases.lease_records
        self.renew = Renewals(self.namespace, settling).renew
        self.count_denial = denials.count_denial
        self.write_denials = denials.write_denials
        self.look = looks.look
        self.status = looks.status
        self.reset = operators.reset
        self.credit = operators.credit
        self.lower = Lowering(self.namespace, settling, self.resolver, self.propagation).lower

        self.create_entity = entities.create_entity
        self.get_entity = entities.get_entity
        self.update_entity = entities.update_entity
        self.delete_entity = entities.delete_entity
        self.children = entities.children
        self.entities = entities.entities

        self.set_config = configs.set_config
        self.get_config = configs.get_config
        self.delete_config = configs.delete_config
        self.resolve = self.resolver.resolve
        self.remembered_on_unavailable = self.resolver.remembered_on_unavailable
        self.set_access = switches.set_access
        self.get_access = switches.get_access
        self.switches = switches.switches
        self.access_of = switches.access_of
        self.remembered_access = self.resolver.remembered_access
        self.resources_with_defaults = configs.resources_with_defaults
        self.entities_with_custom_limits = configs.entities_with_custom_limits
        self.invalidate_config_cache = self.resolver.invalidate_config_cache
        self.cache_stats = self.resolver.cache_stats

        self.audit_events = AuditTrail(self.namespace).audit_events
        self.usage = UsageWindows(self.namespace).usage
        self.verify_usage = UsageProofs(self.namespace).verify_usage
        pulses = Pulses(self.namespace)
        self.put_pulse = pulses.put_pulse
        self.pulses = pulses.pulses
        self.capacity = looks.capacity
        self.tightest_buckets = looks.tightest_buckets
        self.active_entities = looks.active_entities

    @property
    def unresolved(self) -> int:
        """How many writes were lost and may have been done."""
        return self.writer.unresolved


class DynamoStore(RequestPerformer):
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
        how: TransportKind = "own",
        write_ids: WriteIds | None = None,
        ttl_margin_s: int = TTL_MARGIN_S,
        coalesce: bool = True,
        wcu: int = PARTITION_WCU,
    ) -> None:
        """As :class:`RequestPerformer`. ``coalesce``: join what this process writes to one bucket at the same time."""
        super().__init__(
            table,
            target,
            deadline=deadline,
            transport=transport,
            async_transport=async_transport,
            how=how,
            write_ids=write_ids,
            ttl_margin_s=ttl_margin_s,
            wcu=wcu,
        )
        self._coalesce = coalesce
        self.identity = ("dynamodb", target.endpoint_url, target.region, table)
        self._config_ttl_ms = round(config_cache_ttl * 1000)
        self._spaces: dict[tuple[str, bool], DynamoSpace] = {}

        namespaces = Namespaces(self.client)
        whole = Table(self.client, namespaces)
        self.create = whole.create
        self.destroy = whole.destroy
        self.ping = whole.ping
        self.register_namespace = namespaces.register_namespace
        self.get_namespace = namespaces.get_namespace
        self.list_namespaces = namespaces.list_namespaces
        self.delete_namespace = namespaces.delete_namespace
        self.recover_namespace = namespaces.recover_namespace
        self.purge_namespace = namespaces.purge_namespace

    def __repr__(self) -> str:
        return f"DynamoStore({self.client.table!r})"

    def space(self, namespace: str, *, corrected: bool = False) -> DynamoSpace:
        place = (namespace, corrected)
        space = self._spaces.get(place)
        if space is None:
            space = DynamoSpace(
                self.client,
                namespace,
                corrected=corrected,
                config_ttl_ms=self._config_ttl_ms,
                coalesce=self._coalesce,
            )
            space = self._spaces.setdefault(place, space)
        return space
