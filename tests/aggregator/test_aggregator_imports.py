"""The aggregator runs where nothing is installed but this library."""

from __future__ import annotations

import subprocess
import sys

UNWANTED = {
    "asyncio",
    "boto3",
    "botocore",
    "click",
    "concurrent",
    "http",
    "platformdirs",
    "rich",
    "socket",
    "sqlite3",
    "ssl",
    "urllib3",
}

SCRIPT = """
import sys
import zae_limiter_aggregator.follower
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_it_loads_the_core_and_nothing_else() -> None:
    finished = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert set(finished.stdout.split()) & UNWANTED == set()
