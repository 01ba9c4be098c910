"""The contract every store keeps, as data: play it against your own store.

::

    import pytest
    from zae_limiter.testing.contract import CASES, play

    @pytest.mark.parametrize("mode", ["sync", "async"])
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_my_store_keeps_the_contract(case, mode, tmp_path):
        play(case, mode, lambda: MyStore(tmp_path / "data"))

The last argument opens one more client on the same data each time it is called.
"""

from __future__ import annotations

from zae_limiter.testing.contract import (  # noqa: F401  (importing a chapter registers its cases)
    access,
    calendar_limits,
    call_counts,
    calls_in_flight,
    concurrency,
    config_changes,
    extra_credits,
    grants,
    hierarchy,
    invalid_arguments,
    lease_records,
    level_changes,
    limit_names,
    local_grants,
    lowered_levels,
    misconfiguration,
    namespaces,
    pulses,
    settled_usage,
    settlement,
    status_reports,
    totals,
    unavailability,
    wait_timeouts,
    watching_limits,
)
from zae_limiter.testing.contract.harness import CASES, Case, Mode, OpenStore, World, play

__all__ = ["CASES", "Case", "Mode", "OpenStore", "World", "play"]
