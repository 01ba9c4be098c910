"""A folder with a manifest, and the installed command run in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zae_limiter import SyncRepository

COMMAND = str(Path(sys.executable).parent / "zae-limiter")

MANIFEST = """\
manifest: platform
system: {limits: [rpm:60, tpm:10_000], on_unavailable: allow}
resources:
  gpt-4: [rpm:30]
entities:
  acme: {name: Acme Inc., metadata: {plan: gold}, limits: [rpm:1_000]}
  search:
    parent: acme
    cascade: true
    limits:
      gpt-4:
        - {name: images, capacity: 4, refill_amount: 1, refill_period_seconds: 15}
"""

CHANGED = """\
manifest: platform
system: {limits: [rpm:60, tpm:10_000:12_000]}
entities:
  acme: {name: Acme, limits: [rpm:1_000]}
  search: {parent: acme}
"""

Answer = subprocess.CompletedProcess[str]


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., Answer]:
    """Runs the installed command in a folder of its own, on a SQLite file there."""

    SyncRepository.open(f"sqlite:///{tmp_path}/limits.db", create=True).close()

    def run(*arguments: str, given: str | None = None, **environment: str) -> Answer:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ZAEL_")}
        return subprocess.run(
            [COMMAND, *arguments],
            input=given,
            cwd=tmp_path,
            env={**inherited, "ZAEL_URL": "sqlite:///limits.db", "ZAEL_PRINCIPAL": "ann", **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    (tmp_path / "limits.yaml").write_text(MANIFEST)
    return run


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[SyncRepository]:
    with SyncRepository.open(f"sqlite:///{tmp_path}/limits.db") as repository:
        yield repository


def rewrite(folder: Path, text: str) -> None:
    (folder / "limits.yaml").write_text(text)


PLAN = """\
+ entity acme
    + name 'Acme Inc.'
    + metadata 'plan': 'gold'
+ entity search
    + parent acme
    + cascade
+ system
    + rpm:60/min
    + tpm:10000/min
    + on_unavailable allow
+ resource gpt-4
    + rpm:30/min
    ! No longer holds here: tpm 10,000/min, of all entities on all resources.
+ limits of acme
    + rpm:1000/min
    ! No longer holds here: tpm 10,000/min, of all entities on all resources.
+ limits of search on gpt-4
    + images: 1 per 15sec, capacity 4, burst 4
    ! No longer holds here: rpm 30/min, of all entities on gpt-4.
6 to create; 0 unchanged.
"""

EXPORT = """\
# What exists in namespace default.
manifest: limits
system:
  on_unavailable: allow
  limits: [rpm:60/min, tpm:10000/min]
resources:
  gpt-4: [rpm:30/min]
entities:
  acme:
    name: "Acme Inc."
    metadata:
      plan: gold
    limits: [rpm:1000/min]
  search:
    parent: acme
    cascade: true
    limits:
      gpt-4:
        - {name: images, capacity: 4, refill_amount: 1, refill_period_seconds: 15, burst: 4}
"""
