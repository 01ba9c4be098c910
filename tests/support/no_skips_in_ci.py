"""A plugin: where ``CI`` is set, a test that is skipped fails, so that nothing stops being tested unnoticed.

``tests/conftest.py`` takes its hook. Left out are only tests that need what a runner may refuse to a build.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

NEEDS_ROOT = "mounting a small disk takes root and tmpfs"
ALLOWED = (NEEDS_ROOT,)
"""Reasons that are none of the build's; each such test has a stand-in that needs nothing."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not reason.endswith(ALLOWED):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} was skipped, and CI is set: {reason}"
    return report
