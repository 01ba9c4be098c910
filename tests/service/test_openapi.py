"""The OpenAPI document is one, and what it says holds: of every operation, with data that tools make up."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import given as given_data
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis.checks import CHECKS

from support.service_world import LIMITS
from zae_limiter import ValidationError
from zae_limiter.service.app import create_app
from zae_limiter.service.backend import Backend
from zae_limiter.service.openapi import openapi_document
from zae_limiter.service.routes import OPERATIONS, TABLE
from zae_limiter.service.schema_check import check_document, compile_check
from zae_limiter.stores.memory.store import MemoryStore

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
DOCUMENT = openapi_document(TABLE)
EXAMPLES = 10
LEFT_OUT = {"events"}
"""A stream does not end."""


def test_every_operation_is_described_once() -> None:
    described = [word["operationId"] for methods in DOCUMENT["paths"].values() for word in methods.values()]
    assert sorted(described) == sorted(operation.id for operation in TABLE)
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)


def test_the_page_has_every_operation() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [
        f"{operation.method} {operation.path}"
        for operation in OPERATIONS
        if not re.search(rf"`{operation.method} [^`]*{re.escape(operation.path.replace(':path', ''))}[`?]", page)
    ]
    assert missing == []


def in_memory() -> Any:
    backend = Backend(MemoryStore())
    asyncio.run(_with_limits(backend))
    return create_app(backend)


async def _with_limits(backend: Backend) -> None:
    await backend.limiter().set_system_defaults(LIMITS)


def without_security(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a service without tokens; ``test_guard.py`` has what tokens are for."""
    paths = {
        path: {method: {**told, "security": []} for method, told in methods.items()}
        for path, methods in document["paths"].items()
    }
    return {**document, "paths": paths}


schema = schemathesis.openapi.from_dict(without_security(DOCUMENT))
schema.app = in_memory()


@pytest.mark.parametrize("host", ["localhost"])  # with it, each operation is a test with a name of its own
@schema.exclude(operation_id=list(LEFT_OUT)).parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_answers_are_as_the_document_says(case: Any, host: str) -> None:
    """Statuses, types and forms of answers; and that what does not fit the document is refused."""
    case.headers["host"] = host
    names = (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "unsupported_method",
    )
    case.call_and_validate(checks=[CHECKS.get_one(name) for name in names])


BODIES = [operation for operation in TABLE if operation.body is not None]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(st.sampled_from(["entity", "resource", "consume", "limits", "rpm", "x"]), part, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("operation", BODIES, ids=lambda operation: operation.id)
@given_data(document=JSON)
@settings(max_examples=40)
def test_our_check_of_bodies_agrees_with_json_schema(operation: Any, document: Any) -> None:
    """But for numbers like 1.0, which JSON Schema takes for whole."""
    assert operation.body is not None
    check = compile_check(operation.body)
    try:
        check_document(check, document)
        fits = True
    except ValidationError:
        fits = False
    found = Draft202012Validator(operation.body).is_valid(document)
    assert fits == found or (found and _has_float(document))


def _has_float(document: Any) -> bool:
    if isinstance(document, dict):
        return any(map(_has_float, document.values()))
    return any(map(_has_float, document)) if isinstance(document, list) else isinstance(document, float)


def test_a_schema_that_promises_more_than_is_checked_is_noticed() -> None:
    with pytest.raises(ValueError, match="oneOf"):
        compile_check({"oneOf": []})
