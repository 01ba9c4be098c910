"""The package of the aggregator's function: a zip of what its handler imports, and nothing else.

What is needed is found by reading the sources, from the handler on: every module of ours that an import names,
wherever in a file it stands, except where only a type checker looks. A module that cannot be imported without
third-party code is left out, and so is what only asyncio needs: the function works in threads and has nothing
installed. Docstrings stay behind, a quarter of the size; lines keep their numbers, so that a traceback leads to the
source. The bytes depend on the sources and on the compressor alone: not on time, order, or who builds where.
"""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HANDLER: Final = "zae_limiter_aggregator.handler.handler"
"""What Lambda calls."""

OURS: Final = ("zae_limiter", "zae_limiter_aggregator")
START: Final = "zae_limiter_aggregator.handler"
NEVER_RUN: Final = frozenset({"asyncio"})
"""Of the standard library, what the function never runs."""

LARGEST: Final = 150 * 1024
"""How many bytes we let it have, so that a cold start stays short. Tests and the benchmarks hold it to that."""

_TIMESTAMP: Final = (1980, 1, 1, 0, 0, 0)
_READABLE_FILE: Final = 0o100644 << 16
_UNIX: Final = 3

_ROOT: Final = Path(__file__).parents[2]


def build_lambda_package() -> bytes:
    """The zip that Lambda is given; the same bytes for the same sources."""
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in package_files():
            entry = zipfile.ZipInfo(path.relative_to(_ROOT).as_posix(), _TIMESTAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _READABLE_FILE
            entry.create_system = _UNIX
            archive.writestr(entry, without_docstrings(path.read_bytes().replace(b"\r\n", b"\n")))
    return package.getvalue()


def package_files() -> list[Path]:
    """The sources that belong into the package, in the order they have in it."""
    found: dict[str, Path] = {}
    ahead = [START]
    while ahead:
        name = ahead.pop()
        path = _source_of(name)
        if name in found or path is None:
            continue
        tree = ast.parse(path.read_bytes())
        if name != START and any(_cannot_run(target) for target in _imported(tree.body, lazily=False)):
            continue
        found[name] = path
        ahead += _packages_above(name)
        ahead += [target for target in _imported(tree.body, lazily=True) if target.partition(".")[0] in OURS]
    return sorted(found.values())


def without_docstrings(source: bytes) -> bytes:
    """A module with every string that stands alone made empty, and every line where it was."""
    lines = source.split(b"\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            after = lines[last][node.end_col_offset :]
            empty = [b""] * (last - first)
            lines[first : last + 1] = [lines[first][: node.col_offset] + b'""' + after, *empty]
    return b"\n".join(lines)


def _cannot_run(target: str) -> bool:
    """Whether importing this needs something that the function does not have."""
    top = target.partition(".")[0]
    return top not in OURS and (top in NEVER_RUN or top not in sys.stdlib_module_names)


def _source_of(name: str) -> Path | None:
    """The file of a module or package of ours; nothing if it is neither."""
    place = _ROOT.joinpath(*name.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


def _packages_above(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _imported(body: list[ast.stmt], *, lazily: bool) -> Iterator[str]:
    """Names of all modules that statements may import, and of what might be one; ``lazily`` in functions too."""
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module is not None:
            yield statement.module
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.If) and _is_for_type_checkers(statement.test):
            yield from _imported(statement.orelse, lazily=lazily)
        elif lazily or not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                for inner in getattr(statement, field, ()):
                    yield from _imported([inner] if isinstance(inner, ast.stmt) else inner.body, lazily=lazily)


def _is_for_type_checkers(test: ast.expr) -> bool:
    named = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else None
    return named == "TYPE_CHECKING"
