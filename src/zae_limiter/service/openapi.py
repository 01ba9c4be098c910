"""The OpenAPI document: the table of routes, for tools and for clients in other languages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from zae_limiter import __version__
from zae_limiter.service.operations import JSON_TYPE, Call, Handler, Operation, Parameter
from zae_limiter.service.problems import Reply, encode_json
from zae_limiter.service.schemas import PROBLEM, TEXT

PATH_PARAMETER = re.compile(r"\{([a-z_]+)(?::[a-z]+)?\}")
NAMESPACE = Parameter(
    "Zael-Namespace", TEXT, "The namespace to work in, if it is not that of the service.", place="header"
)


def document_handler(operations: Sequence[Operation]) -> Handler:
    """What answers with the document of these operations."""
    content = encode_json(openapi_document(operations)).encode()

    async def openapi(call: Call) -> Reply:
        """The document."""
        return Reply(200, content, [JSON_TYPE])

    return openapi


def openapi_document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The document of these operations (OpenAPI 3.1)."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = PATH_PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "zae-limiter",
            "version": __version__,
            "description": "An exact rate limiter. Amounts are whole tokens, times are ISO 8601 in UTC. "
            "Errors are problem documents (RFC 9457).",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": PROBLEM},
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *map(_parameter, _parameters(operation))],
        "responses": _responses(operation),
    }
    if operation.roles:
        described["security"] = [{"token": []}]
        described["description"] = f"Takes the role {' or '.join(sorted(operation.roles))}."
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": operation.body}},
        }
    return described


def _parameters(operation: Operation) -> tuple[Parameter, ...]:
    return (*operation.parameters, NAMESPACE) if operation.roles else operation.parameters


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in PATH_PARAMETER.findall(operation.path)
    ]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _responses(operation: Operation) -> dict[str, Any]:
    """Every status that it may answer with."""
    success: dict[str, Any] = {"description": HTTPStatus(operation.success).phrase}
    if operation.reply is not None:
        success["content"] = {operation.reply_type: {"schema": operation.reply}}
    return {str(operation.success): success, **{str(status): _problem(status) for status in statuses_of(operation)}}


def statuses_of(operation: Operation) -> list[int]:
    """The statuses of the problems that an operation may answer with."""
    found = {*operation.errors, 403}
    if operation.roles:
        found.add(401)
    if operation.body is not None:
        found |= {400, 408, 413}
    return sorted(found)


def _problem(status: int) -> dict[str, Any]:
    return {
        "description": HTTPStatus(status).phrase,
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
