"""What every test has.

``make test`` runs the tests in two processes. Each starts engines of its own, and most tests may run in either. Those
that watch the clock or start crowds of processes would disturb one another: they are one group, run by one of the two.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from engines.fixtures import dynoxide, engine, ministack, redis_6_2, valkey_9_1, valkey_cluster
from support.no_skips_in_ci import pytest_runtest_makereport

__all__ = [
    "dynoxide",
    "engine",
    "ministack",
    "pytest_runtest_makereport",
    "redis_6_2",
    "valkey_9_1",
    "valkey_cluster",
]

pytest.register_assert_rewrite("zae_limiter.testing.contract")

settings.register_profile("busy machine", deadline=None, max_examples=150)
settings.register_profile("another Python", deadline=None, max_examples=30)
settings.load_profile("busy machine")

for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)  # the tests may be started from a terminal; the commands that they start have none

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell does that to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the commands that the tests interrupt would inherit it

ONE_AFTER_THE_OTHER = (
    "tests/cli/test_demo_",
    "tests/dynamodb/behaviour/test_outages",
    "tests/dynamodb/behaviour/test_crowds.py",
    "tests/dynamodb/behaviour/test_hostile_server",
    "tests/dynamodb/transport/behaviour/test_missing_answers",
    "tests/dynamodb/transport/behaviour/test_connection_",
    "tests/dynamodb/transport/test_connection_",
    "tests/dynamodb/transport/test_credentials",
    "tests/contract/test_extreme_limits",
    "tests/embedded/test_signals",
    "tests/lease/test_interrupted_",
    "tests/repository/test_stopped_loops",
    "tests/repository/test_wait_queue_and_forks",
    "tests/sqlite/",
)
"""How the names of the tests begin that watch the clock or start crowds."""


FAST = (
    "tests/bucket/",
    "tests/cli/test_acquire_command.py",
    "tests/cli/test_argument_parsers.py",
    "tests/cli/test_cli_output.py",
    "tests/cli/test_command_help.py",
    "tests/cli/test_error_messages.py",
    "tests/integrations/test_asgi.py",
    "tests/integrations/test_metrics.py",
    "tests/integrations/test_wsgi.py",
    "tests/lease/",
    "tests/limiter/",
    "tests/llm/",
    "tests/manifests/",
    "tests/memory/",
    "tests/models/",
    "tests/repository/",
    "tests/running/",
    "tests/service/test_endpoint.py",
    "tests/service/test_lease_routes.py",
    "tests/stores/",
    "tests/testing/",
    "tests/typing/",
)
FAST_CONTRACT = ("memory", "sqlite")
NOT_FAST = (
    *ONE_AFTER_THE_OTHER,
    "tests/manifests/test_manifest_properties",
    "tests/manifests/test_manifest_schema.py::test_reader_and_schema_agree",
    "tests/models/test_calendars.py::test_days_of_every_zone",
    "tests/models/test_calendars.py::test_every_day_of_odd_zones",
    "tests/models/test_calendars.py::test_months_of_every_zone",
)
ENGINE_FIXTURES = frozenset(("dynoxide", "engine", "ministack", "redis_6_2", "valkey_9_1", "valkey_cluster"))
"""What may differ from one Python to the next and needs no engine: ``make others`` runs it on those that are here."""


def is_fast(nodeid: str, fixtures: Iterable[str]) -> bool:
    """Whether a test is of the fast half."""
    if nodeid.startswith("tests/contract/test_contract.py"):
        return any(store in nodeid for store in FAST_CONTRACT)
    return nodeid.startswith(FAST) and not nodeid.startswith(NOT_FAST) and ENGINE_FIXTURES.isdisjoint(fixtures)


def only_fast(config: pytest.Config) -> bool:
    """Whether this run is of the fast half alone: ``make fast``."""
    return bool(config.getoption("markexpr") == "fast")


def pytest_configure(config: pytest.Config) -> None:
    if only_fast(config):
        settings.load_profile("another Python")  # the arithmetic is whole numbers: all examples are tried on one


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that have no fast test are not even read: that takes longer than many of the tests."""
    if not only_fast(config) or not collection_path.name.startswith("test_"):
        return None
    path = collection_path.relative_to(Path(__file__).parents[1]).as_posix()
    return None if path.startswith((*FAST, "tests/contract/")) else True


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test finds the log as it is at first: what frameworks and tests before it have set is of no account."""
    logging.disable(logging.NOTSET)
    logging.root.setLevel(logging.WARNING)
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("zae_limiter")]:
        logger = logging.getLogger(name)
        logger.disabled, logger.propagate = False, True
        logger.setLevel(logging.NOTSET)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    repeated = [nodeid for nodeid, number in Counter(item.nodeid for item in items).items() if number > 1]
    if repeated:  # pytest-xdist knows tests by their names, and would run one of each
        raise pytest.UsageError(f"several tests have the name {repeated[0]}")
    for item in items:
        if is_fast(item.nodeid, getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.fast)


MOST_RERUNS = 5
"""How many tests may pass at their second try (``make test RERUNS=1``) before that is no accident any more."""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    reruns = len(reporter.stats.get("rerun", ())) if reporter is not None else 0
    if reruns > MOST_RERUNS and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who runs what, with ``--dist loadgroup``: the group first and in one process, the others wherever there is room.

    (The mark ``xdist_group`` would say the same; pytest-xdist 3.8 overlooks it with pytest 9.2.)
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class GroupFirst(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "one after the other" if nodeid.startswith(ONE_AFTER_THE_OTHER) else nodeid

    return GroupFirst(config, log)
