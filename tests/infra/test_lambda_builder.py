"""The function's package: the same bytes every time, complete, small, and ours alone."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from public_operations import World
from stream_records import stream_records

from engines.servers import Engine
from zae_limiter import SyncRepository
from zae_limiter.infra import lambda_builder
from zae_limiter.infra.lambda_builder import (
    LARGEST,
    OURS,
    build_lambda_package,
    package_files,
    without_docstrings,
)

SOURCES = Path(lambda_builder.__file__).parents[2]


@pytest.fixture(scope="module")
def package() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(build_lambda_package()))


# The same bytes


BUILD = """
import hashlib
from zae_limiter.infra.lambda_builder import build_lambda_package
print(hashlib.sha256(build_lambda_package()).hexdigest())
"""


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    hashes = set()
    for number, zone in enumerate(("UTC", "Asia/Tokyo")):
        environment = {**os.environ, "TZ": zone, "PYTHONHASHSEED": str(number), "HOME": str(tmp_path)}
        built = subprocess.run(
            [sys.executable, "-c", BUILD], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        hashes.add(built.stdout)
    assert len(hashes) == 1


def test_nothing_in_it_tells_when_or_where_it_was_built(package: zipfile.ZipFile) -> None:
    entries = package.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {(entry.create_system, entry.external_attr) for entry in entries} == {(3, 0o100644 << 16)}


# What is in it


def test_it_is_small(package: zipfile.ZipFile) -> None:
    assert len(build_lambda_package()) <= LARGEST == 150 * 1024
    assert package.testzip() is None


def test_only_our_own_modules_are_in_it(package: zipfile.ZipFile) -> None:
    names = package.namelist()
    assert {name.partition("/")[0] for name in names} == set(OURS)
    assert {Path(name).suffix for name in names} == {".py"}
    parts = {part for name in names for part in name.split("/")[1:]}
    assert parts.isdisjoint({"cli", "manifests", "infra", "testing", "limiter", "lease", "sqlite", "memory"})
    assert parts.isdisjoint({"store.py", "acquire.py", "settle.py", "write_queue.py"}), (
        "the function takes from no bucket"
    )
    assert [name for name in names if "asyncio" in name] == []


def test_every_module_is_the_source_without_its_docstrings(package: zipfile.ZipFile) -> None:
    for path in package_files():
        packed = package.read(path.relative_to(SOURCES).as_posix()).decode()
        source = path.read_text(encoding="utf-8")
        assert meaning_of(packed) == meaning_of(source)
        assert packed.count("\n") == source.count("\n"), "a traceback leads to the line"


def meaning_of(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = ""
    return ast.dump(tree)


WITH_DOCSTRINGS = b'''"""One
two."""

def f() -> str:
    """Says."""
    return """kept
"""

class A:
    """B

    c."""
'''

WITHOUT_THEM = b'''""


def f() -> str:
    ""
    return """kept
"""

class A:
    ""


'''


def test_docstrings_are_taken_out_and_everything_stays_in_its_line() -> None:
    assert without_docstrings(WITH_DOCSTRINGS) == WITHOUT_THEM


# That it is enough


RUN = """
import json, os, sys
sys.path[:] = [sys.argv[1], *[path for path in sys.path if "site-packages" not in path]]
from zae_limiter_aggregator.handler import handler
answer = handler({"Records": json.load(sys.stdin)}, None)
ours = [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] in ("zae_limiter", "zae_limiter_aggregator")]
print(json.dumps([answer, sorted({name.partition(".")[0] for name in sys.modules}), ours]))
"""


IMPORT = """
import importlib, json, sys
sys.path[:] = [sys.argv[1], *[path for path in sys.path if "site-packages" not in path]]
for name in json.load(sys.stdin):
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.argv[1]), module.__file__
"""


def test_every_module_in_it_can_be_imported_where_nothing_is_installed(
    package: zipfile.ZipFile, tmp_path: Path
) -> None:
    archive = tmp_path / "aggregator.zip"
    archive.write_bytes(build_lambda_package())
    names = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in package.namelist()]
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", IMPORT, str(archive)],
        input=json.dumps(names),
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_it_counts_a_real_stream_where_nothing_is_installed(dynoxide: Engine, tmp_path: Path) -> None:
    archive = tmp_path / "aggregator.zip"
    archive.write_bytes(build_lambda_package())
    table = "packaged"
    url = f"dynamodb://{table}?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    with SyncRepository.open(url, create=True) as repository:
        world = World(dynoxide.endpoint_url, table)
        world.prepare()
        for _ in range(3):
            with world.ground.acquire("key", "gpt", {"rpm": 2}):
                pass
        environment = {
            "ZAEL_TABLE": table,
            "ZAEL_ARCHIVE": str(tmp_path / "kept"),
            "AWS_REGION": dynoxide.region,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL_DYNAMODB": dynoxide.endpoint_url,
            "HOME": str(tmp_path),
        }
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-W", "error", "-c", RUN, str(archive)],
            input=json.dumps(stream_records(world.transport, table)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        answer, loaded, ours = json.loads(ran.stdout.splitlines()[-1])
        assert answer == {"batchItemFailures": []}
        assert {Path(path).is_relative_to(archive) for path in ours} == {True}
        assert set(loaded) <= {*sys.stdlib_module_names, *OURS, "__main__"}
        usage = world.ground.get_usage_summary("key")
        assert (usage.total_events, usage.total["rpm"]) == (3, 6)
        world.close()
        repository.delete_table()
