"""The public API: every name is there and explained, sync and async are twins, and types are exact."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from mypy import api as mypy

import zae_limiter
from zae_limiter import Lease, RateLimiter, Repository, SyncLease, SyncRateLimiter, SyncRepository

ROOT = Path(__file__).parents[2]
TYPED_USE = ROOT / "tests" / "typing" / "api.py"

TWINS: list[tuple[type, type]] = [(RateLimiter, SyncRateLimiter), (Repository, SyncRepository), (Lease, SyncLease)]

NOT_AWAITED = {
    "RateLimiter": {"acquire", "limit", "resume"},
    "Repository": {"get_cache_stats", "in_namespace", "invalidate_config_cache", "namespace", "unresolved"},
    "Lease": {
        "already_settled",
        "consumed",
        "degraded",
        "holds",
        "id",
        "local",
        "refused_by",
        "remaining",
        "statuses",
        "token",
    },
}
"""What an async class answers at once: the rest are coroutine functions."""

CLASSES = [kind for name in zae_limiter.__all__ if inspect.isclass(kind := getattr(zae_limiter, name))]


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def own_public_members(kind: type) -> dict[str, Any]:
    """Methods and properties that this library wrote, not those of ``Exception``, ``str`` or ``tuple``."""
    return {
        name: inspect.getattr_static(kind, name)
        for name in public_names(kind)
        if any(name in vars(base) for base in kind.__mro__ if base.__module__.startswith("zae_limiter"))
    }


def function_of(member: Any) -> Any:
    """What a method, class method or property does."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


METHODS = [
    pytest.param(function_of(member), id=f"{kind.__name__}.{name}")
    for kind in CLASSES
    for name, member in sorted(own_public_members(kind).items())
    if inspect.isfunction(function_of(member))
]


# Names


@pytest.mark.parametrize("name", zae_limiter.__all__)
def test_every_public_name_resolves_and_is_listed(name: str) -> None:
    assert getattr(zae_limiter, name) is not None
    assert name in dir(zae_limiter)


def test_no_public_name_is_listed_twice() -> None:
    assert len(zae_limiter.__all__) == len(set(zae_limiter.__all__))


def test_the_lazy_names_and_those_for_type_checkers_are_the_same() -> None:
    """``__init__`` says each name twice: once for Python, once for mypy. Here they are compared."""
    tree = ast.parse(Path(zae_limiter.__file__).read_text())
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    homes = {
        (alias.asname, f"{statement.module}.{alias.name}")
        for statement in typed.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    lazy = {(name, f"zae_limiter.{home}.{name}") for name, home in zae_limiter._HOME_OF.items()}
    assert homes == lazy


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Limits'"):
        _ = zae_limiter.Limits
    with pytest.raises(ImportError):
        exec("from zae_limiter import Limits")


# Explanations


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_class_says_what_it_is(kind: type) -> None:
    written_by_hand = kind.__doc__ is not None and not kind.__doc__.startswith(f"{kind.__name__}(")
    assert written_by_hand
    assert inspect.cleandoc(kind.__doc__ or "").splitlines()[0].rstrip().endswith((".", ":"))


@pytest.mark.parametrize("function", METHODS)
def test_every_public_method_says_what_the_caller_gets(function: Any) -> None:
    assert function.__doc__
    assert function.__doc__.strip()


@pytest.mark.parametrize("function", METHODS)
def test_every_public_method_is_annotated_in_full(function: Any) -> None:
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    unannotated = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.annotation is inspect.Parameter.empty and parameter.name not in ("self", "cls")
    ]
    assert unannotated == []


# Twins


def plain(annotation: object) -> str:
    """An annotation as text, with the names of the sync classes made those of the async ones."""
    return re.sub(r"\bSync(?=[A-Z])", "", str(annotation)).replace("Opening[Self]", "Self")


def shape(function: Any) -> list[tuple[str, Any, Any, str]]:
    signature = inspect.signature(function)
    rows: list[tuple[str, Any, Any, str]] = [
        (parameter.name, parameter.kind, parameter.default, plain(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    return [*rows, ("return", None, None, plain(signature.return_annotation))]


def members_of_twins() -> list[Any]:
    return [
        pytest.param(awaited, returned, name, id=f"{awaited.__name__}.{name}")
        for awaited, returned in TWINS
        for name in sorted(public_names(awaited) | {"__init__"})
    ]


@pytest.mark.parametrize(("awaited", "returned"), TWINS, ids=[kind.__name__ for kind, _ in TWINS])
def test_twins_have_the_same_public_names(awaited: type, returned: type) -> None:
    assert public_names(awaited) == public_names(returned)


@pytest.mark.parametrize(("awaited", "returned", "name"), members_of_twins())
def test_sync_and_async_classes_have_the_same_signatures_and_docstrings(
    awaited: type, returned: type, name: str
) -> None:
    one, other = (inspect.getattr_static(kind, name) for kind in (awaited, returned))
    assert type(one) is type(other)
    assert shape(function_of(one)) == shape(function_of(other))
    if name not in ("__init__", "acquire", "open"):  # these show their own world in an example
        assert function_of(one).__doc__ == function_of(other).__doc__


@pytest.mark.parametrize(("awaited", "returned", "name"), [row for row in members_of_twins() if "__" not in row.id])
def test_the_async_twin_is_awaited_and_the_sync_one_is_not(awaited: type, returned: type, name: str) -> None:
    one, other = (function_of(inspect.getattr_static(kind, name)) for kind in (awaited, returned))
    is_awaited = inspect.iscoroutinefunction(one) or inspect.signature(one).return_annotation == "Opening[Self]"
    assert is_awaited is (name not in NOT_AWAITED[awaited.__name__])
    assert not inspect.iscoroutinefunction(other)


@pytest.mark.parametrize(("awaited", "returned"), TWINS, ids=[kind.__name__ for kind, _ in TWINS])
def test_twins_are_context_managers_of_their_own_world(awaited: type, returned: type) -> None:
    for name in ("enter", "exit"):
        assert inspect.iscoroutinefunction(getattr(awaited, f"__a{name}__"))
        assert inspect.isfunction(getattr(returned, f"__{name}__"))
        assert not hasattr(awaited, f"__{name}__")
        assert not hasattr(returned, f"__a{name}__")
        assert shape(getattr(awaited, f"__a{name}__")) == shape(getattr(returned, f"__{name}__"))


# Types


def test_the_typed_use_names_everything_there_is() -> None:
    tree = ast.parse(TYPED_USE.read_text())
    imported = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "zae_limiter"
        for alias in node.names
    }
    assert imported == set(zae_limiter.__all__)
    for function, kinds in {
        ("use_rate_limiter", "use_limiter_data"): (RateLimiter, Lease),
        ("use_sync_rate_limiter", "use_sync_limiter_data"): (SyncRateLimiter, SyncLease),
        ("use_repository", "use_limiter_data"): (Repository,),
        ("use_sync_repository", "use_sync_limiter_data"): (SyncRepository,),
    }.items():
        bodies = [node for node in tree.body if getattr(node, "name", None) in function]
        used = {node.attr for body in bodies for node in ast.walk(body) if isinstance(node, ast.Attribute)}
        assert set().union(*(public_names(kind) for kind in kinds)) <= used


def test_the_typed_use_is_clean_under_mypy_strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    report, errors, status = mypy.run(["--strict", "--cache-dir", str(tmp_path), str(TYPED_USE)])
    assert (status, errors) == (0, ""), report + errors


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(zae_limiter.__file__).parent / "py.typed").exists()
