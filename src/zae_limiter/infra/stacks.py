"""Deployments, for Python: made, changed, looked at and deleted.

>>> with StackManager(region="eu-central-1") as stacks:
...     stacks.deploy("my-app", StackOptions(max_write_units=500), on_event=print)
...     stacks.health("my-app").grade
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import uuid4

from zae_limiter.exceptions import StackOperationError, ValidationError
from zae_limiter.infra.change_sets import Change
from zae_limiter.infra.cloud import Account, Cloud
from zae_limiter.infra.compatibility import Compatibility, LayoutReader, function_code_of
from zae_limiter.infra.deployments import TABLE_PARAMETER, Deployment, find_all, find_ours
from zae_limiter.infra.health import Health, check_health
from zae_limiter.infra.lambda_builder import build_lambda_package
from zae_limiter.infra.removals import Removal, RemovalResult, delete
from zae_limiter.infra.rollouts import DeployRequest, Rollout, deploy, preview
from zae_limiter.infra.stack_options import StackOptions
from zae_limiter.infra.template import template_text
from zae_limiter.migrations import migrate_store
from zae_limiter.migrations.table_migration import OnProgress
from zae_limiter.naming import check_stack_name
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Credentials
from zae_limiter.stores.open_store import SHORTEST_TABLE_NAME

Listener = Callable[[Any], None]
"""Called with every event of an operation: ``StackEvent``, ``Changes`` and ``ProgressNote``."""

DEADLINE_S = 20.0
"""How long one request to the table may take."""


@cache
def own_package() -> bytes:
    """The package of the function, of this version; built once."""
    return build_lambda_package()


class DeployResult(NamedTuple):
    """A deployment after ``deploy``."""

    deployment: Deployment
    url: str
    """What to open a limiter with."""
    changed: bool
    complete: bool
    """Whether everything is there; ``False`` if CloudFormation was not waited for."""


class StackManager:
    """The deployments of one region of one account.

    What is not given is found as AWS's own tools find it. An endpoint on this machine (a local cloud) needs no
    credentials. Raises ``StackOperationError`` for what AWS refuses or fails to do, and ``RateLimiterUnavailable``
    when it does not answer.
    """

    def __init__(
        self,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        profile: str | None = None,
        credentials: Credentials | None = None,
        template: Callable[[], str] = template_text,
        build: Callable[[], bytes] = own_package,
    ) -> None:
        self._cloud = Cloud(Account(region, endpoint_url, profile, credentials))
        self._template = template
        self._build = build

    def deploy(
        self,
        name: str,
        options: StackOptions | Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        on_event: Listener | None = None,
        *,
        wait: bool = True,
        adopt_table: bool = False,
    ) -> DeployResult:
        """Create a deployment or update it: stack, code, and the table's own records.

        ``options`` may also be parameters of the template, by their names. What is not given stays as it is; the
        first time, it is what the template says. Deploying again what is there changes nothing, and one that was
        interrupted is continued. With ``adopt_table`` a table of this name may be there already, and everything in it
        stays.
        """
        done = self._roll_out(name, options, tags, on_event, wait=wait, adopt=adopt_table)
        if done.complete:
            self._set_up(done.stack.table)
        return DeployResult(done.stack, self.url(done.stack.table), done.changed, done.complete)

    def upgrade(
        self, name: str, on_event: Listener | None = None, on_progress: OnProgress | None = None
    ) -> DeployResult:
        """Bring a deployment to this version: template, code, and the layout of the table.

        Its parameters stay. Clients of an older layout have to be stopped before. It may be ended and run again at any
        time. ``on_progress`` is called with the ``Progress`` of a migration.
        """
        done = self.upgrade_stack(name, on_event)
        migrated = self.upgrade_table(done.deployment.table, on_progress)
        return done._replace(changed=done.changed or migrated)

    def upgrade_stack(self, name: str, on_event: Listener | None = None) -> DeployResult:
        """The first half of an upgrade: template and code."""
        if self.describe(name) is None:
            raise StackOperationError(f"there is no deployment {name!r} in this region")
        done = self._roll_out(name, None, None, on_event, wait=True)
        return DeployResult(done.stack, self.url(done.stack.table), done.changed, done.complete)

    def upgrade_table(self, table: str, on_progress: OnProgress | None = None) -> bool:
        """The second half: the layout of the table; whether it was another one."""
        with self._store(table) as store:
            migrated = migrate_store(store, on_progress=on_progress)
        self._set_up(table)
        return bool(migrated.done)

    def compatibility(self, name: str) -> Compatibility:
        """A deployment compared with this version of the library."""
        found = self.describe(name)
        if found is None:
            raise StackOperationError(f"there is no deployment {name!r} in this region")
        with self._store(found.table) as store:
            layout = SyncDriver(machine_clock, store.perform).run(LayoutReader(store.client).read())
        return Compatibility(found, layout, function_code_of(found, self._build))

    def preview(
        self,
        name: str,
        options: StackOptions | Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> tuple[Change, ...]:
        """What ``deploy`` would change of the stack's resources."""
        return self._cloud.run(preview(self._order(name, options, tags, wait=True)))

    def delete(
        self,
        name: str,
        *,
        keep_table: bool = False,
        keep_archive: bool = False,
        delete_archive: bool = False,
        lift_protection: bool = False,
        on_event: Listener | None = None,
    ) -> RemovalResult:
        """Delete a deployment and everything in its table, unless the table is to be kept. If there is none: nothing.

        A bucket with archived audit events is refused, unless it is said what becomes of it; so is a table that is
        protected from deletion, unless with ``lift_protection``.
        """
        removal = Removal(check_stack_name(name), _run_id(), keep_table, keep_archive, delete_archive, lift_protection)
        return self._cloud.run(delete(removal), on_event or _ignore)

    def describe(self, name: str) -> Deployment | None:
        """A deployment, or nothing."""
        return self._cloud.run(find_ours(check_stack_name(name)))

    def list(self) -> list[Deployment]:
        """Every deployment of the region, by name."""
        return self._cloud.run(find_all())

    def health(self, name: str) -> Health:
        """The health of a deployment."""
        return self._cloud.run(check_health(check_stack_name(name)))

    def url(self, table: str) -> str:
        """What a limiter on the table of a deployment is opened with, here."""
        target = self._cloud.target()
        where = {"region": target.region, "endpoint_url": target.endpoint_url}
        return f"dynamodb://{table}?{urlencode({key: value for key, value in where.items() if value}, safe=':/')}"

    def close(self) -> None:
        """Close the connections."""
        self._cloud.close()

    def __enter__(self) -> StackManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _order(
        self,
        name: str,
        options: StackOptions | Mapping[str, str] | None,
        tags: Mapping[str, str] | None,
        *,
        wait: bool,
    ) -> DeployRequest:
        check_stack_name(name)
        parameters = options.parameters() if isinstance(options, StackOptions) else options or {}
        if len(name) < SHORTEST_TABLE_NAME and not parameters.get(TABLE_PARAMETER):
            raise ValidationError("name", name, "names a table, which has at least three characters")
        return DeployRequest(name, self._template(), self._build, parameters, tags or {}, _run_id(), wait)

    def _roll_out(
        self,
        name: str,
        options: StackOptions | Mapping[str, str] | None,
        tags: Mapping[str, str] | None,
        on_event: Listener | None,
        *,
        wait: bool,
        adopt: bool = False,
    ) -> Rollout:
        order = self._order(name, options, tags, wait=wait)._replace(adopt=adopt)
        return self._cloud.run(deploy(order), on_event or _ignore)

    def _set_up(self, table: str) -> None:
        """The records that every table begins with: its version, and the namespace ``default``."""
        with self._store(table) as store:
            SyncDriver(machine_clock, store.perform).run(store.create(machine_clock()))

    @contextmanager
    def _store(self, table: str) -> Iterator[DynamoStore]:
        store = DynamoStore(table, self._cloud.target(), deadline=DEADLINE_S)
        try:
            yield store
        finally:
            store.close()


def _run_id() -> str:
    return uuid4().hex[:16]


def _ignore(event: Any) -> None:
    pass
