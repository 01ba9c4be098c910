"""What an import costs: which modules come with it. And the direction of imports inside the library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OTHER_PEOPLES_CODE = ["boto3", "botocore", "click", "platformdirs", "rich", "urllib3", "yaml"]
"""Nothing outside the standard library is loaded before a caller asks for it."""

HEAVY = ["asyncio", "concurrent", "email", "http", "multiprocessing", "socket", "sqlite3", "ssl", "subprocess"]
"""Large parts of the standard library that an embedded limiter in memory has no use for."""

NOT_FOR_A_NAME = [
    "dataclasses",
    "datetime",
    "inspect",
    "json",
    "logging",
    "threading",
    "urllib",
    "importlib.metadata",
]
"""What the first use of a name may load, but not the import of the package."""

IMPORTS: list[tuple[str, list[str]]] = [
    ("import zae_limiter", [*OTHER_PEOPLES_CODE, *HEAVY, *NOT_FOR_A_NAME]),
    (
        "import zae_limiter; zae_limiter.__version__; dir(zae_limiter)",
        [*OTHER_PEOPLES_CODE, *HEAVY, *NOT_FOR_A_NAME],
    ),
    ("from zae_limiter import ZAELimiterError, ValidationError", [*OTHER_PEOPLES_CODE, *HEAVY, *NOT_FOR_A_NAME]),
    ("from zae_limiter import Limit", [*OTHER_PEOPLES_CODE, *HEAVY, "logging", "threading"]),
    ("from zae_limiter import SyncRateLimiter", [*OTHER_PEOPLES_CODE, *HEAVY]),
    (
        "from zae_limiter import SyncRateLimiter; SyncRateLimiter.open('memory://')",
        [*OTHER_PEOPLES_CODE, *HEAVY],
    ),
    (
        "from zae_limiter import Limit, SyncRateLimiter\n"
        "limiter = SyncRateLimiter.open('memory://')\n"
        "limiter.set_system_defaults([Limit.per_minute('rpm', 10)])\n"
        "with limiter.acquire('key-1', 'gpt-4', {'rpm': 1}) as lease:\n"
        "    lease.adjust(rpm=1)\n"
        "limiter.close()",
        [*OTHER_PEOPLES_CODE, *HEAVY],
    ),
    ("from zae_limiter import RateLimiter", [*OTHER_PEOPLES_CODE, "sqlite3"]),
]


def modules_loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter loads for ``code``, beyond those it begins with."""
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(finished.stdout.split())


@pytest.mark.parametrize(("code", "unwanted"), IMPORTS, ids=[code.replace("\n", "; ")[:70] for code, _ in IMPORTS])
def test_an_import_loads_nothing_it_does_not_need(code: str, unwanted: list[str]) -> None:
    loaded = modules_loaded_by(code)
    assert "zae_limiter" in loaded
    assert {name for name in loaded for other in unwanted if name == other or name.startswith(f"{other}.")} == set()


def test_importing_the_package_loads_none_of_its_parts() -> None:
    loaded = modules_loaded_by("import zae_limiter")
    assert {name for name in loaded if name.startswith("zae_limiter")} == {"zae_limiter", "zae_limiter.version"}


def test_one_name_does_not_load_the_world_of_the_other() -> None:
    sync = modules_loaded_by("from zae_limiter import SyncRateLimiter")
    assert not {name for name in sync if name.endswith((".limiter.limiter", ".lease.lease", ".async_driver"))}
    awaited = modules_loaded_by("from zae_limiter import RateLimiter")
    assert not {name for name in awaited if name.endswith((".sync_limiter", ".sync_lease", ".sync_driver"))}


def test_stores_are_loaded_by_the_url_that_names_them() -> None:
    assert "zae_limiter.stores.memory.store" not in modules_loaded_by("from zae_limiter import SyncRateLimiter")


FRAMEWORKS = {"celery", "fastapi", "httpx", "httpx2", "litellm", "opentelemetry", "prometheus_client", "requests"}


def frameworks_loaded_by(module: str) -> set[str]:
    return {name.partition(".")[0] for name in modules_loaded_by(f"import zae_limiter.{module}")} & FRAMEWORKS


def test_an_integration_loads_what_it_is_named_after_and_no_other() -> None:
    for module in (
        "llm",
        "http_fields",
        "integrations",
        "integrations.asgi",
        "integrations.wsgi",
        "integrations.tally",
    ):
        assert frameworks_loaded_by(module) == set(), module
    assert frameworks_loaded_by("integrations.httpx") == {"httpx"}
    assert frameworks_loaded_by("integrations.httpx2") == {"httpx2"}
    assert not {name for name in modules_loaded_by("import zae_limiter.llm") if ".integrations" in name}


OFFENCES = {
    "Imports go one way": ("zae_limiter/bucket.py", "import zae_limiter.limiter.limiter"),
    "Stores do not know each other": ("zae_limiter/stores/memory/store.py", "import zae_limiter.stores.sqlite.store"),
    "DynamoDB has nothing of the embedded stores": (
        "zae_limiter/stores/dynamodb/items.py",
        "import zae_limiter.stores.embedded.routes",
    ),
    "What decides reads no clock, draws no random number and waits for nothing": (
        "zae_limiter/stores/dynamodb/operations/acquire.py",
        "import time",
    ),
    "The command line uses public names": (
        "zae_limiter/cli/commands/usage.py",
        "from zae_limiter.stores.dynamodb.table_client import table_client_of",
    ),
    "Integrations use public names": (
        "zae_limiter/integrations/asgi.py",
        "from zae_limiter.repository.core import Core",
    ),
    "The service uses public names": (
        "zae_limiter/service/backend.py",
        "from zae_limiter.repository.core import Core",
    ),
    "The aggregator brings no transport and no other store along": (
        "zae_limiter_aggregator/processor.py",
        "import zae_limiter.stores.sqlite.store",
    ),
}
"""One import that each contract forbids."""


def contracts_kept_in(root: Path) -> dict[str, bool]:
    """Every contract of ``[tool.importlinter]`` by its name, and whether the sources under ``root`` keep it."""
    script = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    finished = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    verdicts = {
        line.rpartition(verdict)[0].strip(): verdict == " KEPT"
        for line in finished.stdout.splitlines()
        for verdict in (" KEPT", " BROKEN")
        if verdict in line
    }
    assert finished.returncode == (0 if all(verdicts.values()) else 1), finished.stdout + finished.stderr
    return verdicts


def test_every_import_keeps_the_contracts() -> None:
    assert contracts_kept_in(ROOT) == dict.fromkeys(OFFENCES, True)


@pytest.mark.parametrize("contract", OFFENCES)
def test_a_contract_notices_the_import_it_forbids(contract: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    where, offence = OFFENCES[contract]
    with (tmp_path / "src" / where).open("a") as module:
        module.write(f"\n{offence}\n")
    assert contracts_kept_in(tmp_path)[contract] is False


def test_every_package_of_the_library_stands_in_a_contract() -> None:
    """A new folder has to say where it stands."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    ordered = {name for contract in settings["contracts"] for name in contract.get("layers", [])}
    source = ROOT / "src" / "zae_limiter"
    parts = {path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {f"zae_limiter.{part}" for part in parts - {"__init__", "version", "py"}} <= ordered
