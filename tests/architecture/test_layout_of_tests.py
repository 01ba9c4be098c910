"""Where tests are: found by the name of the module they are about, and never imported by one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TEST_MODULES = {path.stem for path in TESTS.rglob("test_*.py")}
DYNAMODB = TESTS / "dynamodb"
STORE = TESTS.parent / "src" / "zae_limiter" / "stores" / "dynamodb"


def imports_of(source: str) -> Iterator[str]:
    """Every name that a module imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_test_modules(source: str) -> set[str]:
    return {part for name in imports_of(source) for part in name.split(".") if part in TEST_MODULES}


def test_no_module_imports_a_test_module() -> None:
    """What two test modules need is in ``tests/support``, or in a helper beside them."""
    imported = {path.relative_to(TESTS): imported_test_modules(path.read_text()) for path in TESTS.rglob("*.py")}
    assert {str(path): names for path, names in imported.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import test_contract",
        "from test_contract import STORES",
        "from contract import test_contract",
        "def run():\n    from contract.test_contract import STORES",
    ],
)
def test_an_import_of_a_test_module_is_noticed(source: str) -> None:
    assert imported_test_modules(source) == {"test_contract"}


def is_named_after_a_module(test: Path) -> bool:
    """Whether ``test_<module>.py`` or ``test_<module>_<what>.py`` has its module in the same folder of the store."""
    name = test.stem.removeprefix("test_")
    modules = (path.stem for path in (STORE / test.relative_to(DYNAMODB).parent).glob("*.py"))
    return any(name == module or name.startswith(f"{module}_") for module in modules)


def test_the_tests_of_the_dynamodb_store_are_where_its_modules_are() -> None:
    """What concerns several modules is in a folder ``behaviour``."""
    tests = [path for path in DYNAMODB.rglob("test_*.py") if path.parent.name != "behaviour"]
    assert len(tests) > 40
    assert [str(path) for path in tests if not is_named_after_a_module(path)] == []


@pytest.mark.parametrize("name", ["test_bucket_writes.py", "test_settle.py", "operations/test_bucket_write.py"])
def test_a_test_of_no_module_is_noticed(name: str) -> None:
    assert not is_named_after_a_module(DYNAMODB / name)
