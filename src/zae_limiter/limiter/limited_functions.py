"""Functions whose calls take tokens: what ``limiter.limit(...)`` makes of them.

Entity, resource and amounts may be values, text with names of arguments in braces, or functions of named arguments.
Generators take when their iteration starts, and their lease ends when they are closed; being left midway is no
failure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from zae_limiter.exceptions import ValidationError

Function = TypeVar("Function", bound=Callable[..., Any])

LEASE = "lease"
"""The parameter that gets the lease of a call."""


class CallTerms:
    """What calls of one function take, worked out once and for each call from its arguments."""

    def __init__(
        self,
        limiter: Any,
        function: Callable[..., Any],
        resource: Any,
        consume: Any,
        entity: Any,
        options: Mapping[str, Any],
    ) -> None:
        self._limiter = limiter
        self._signature = inspect.signature(function)
        self._resource = _template(resource, "resource")
        self._entity = _template(entity, "entity")
        if callable(consume):
            self._consume = _of_named(consume)
        else:
            amounts = {name: _template(amount, name) for name, amount in (consume or {"requests": 1}).items()}
            self._consume = lambda named: {name: amount(named) for name, amount in amounts.items()}
        self._options = options
        self._gives_lease = LEASE in self._signature.parameters

    def lease(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The lease of a call."""
        bound = self._signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        named = bound.arguments
        consume = self._consume(named)
        return self._limiter.acquire(self._entity(named), self._resource(named), consume, **self._options)

    def arguments(self, kwargs: dict[str, Any], lease: Any) -> dict[str, Any]:
        """The arguments by name, with the lease for a function that wants it."""
        return {**kwargs, LEASE: lease} if self._gives_lease and LEASE not in kwargs else kwargs


def limited_for_threads(terms_of: Callable[[Callable[..., Any]], CallTerms], function: Any, settle: Any) -> Any:
    """A function or generator whose calls take tokens first."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ValidationError("function", function, "is asynchronous: use the limit() of a RateLimiter")
    terms = terms_of(function)
    if inspect.isgeneratorfunction(function):
        _refuse_settle(settle, function)

        @wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            with terms.lease(args, kwargs) as lease:
                try:
                    yield from function(*args, **terms.arguments(kwargs, lease))
                except GeneratorExit:
                    return

        return generator

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        with terms.lease(args, kwargs) as lease:
            result = function(*args, **terms.arguments(kwargs, lease))
            if settle is not None:
                lease.settle(settle(result))
            return result

    return limited


def limited_for_tasks(terms_of: Callable[[Callable[..., Any]], CallTerms], function: Any, settle: Any) -> Any:
    """A coroutine function or async generator whose calls take tokens first."""
    if inspect.isasyncgenfunction(function):
        _refuse_settle(settle, function)
        terms = terms_of(function)

        @wraps(function)
        async def generator(*args: Any, **kwargs: Any) -> Any:
            async with terms.lease(args, kwargs) as lease:
                inner = function(*args, **terms.arguments(kwargs, lease))
                try:
                    async for item in inner:
                        yield item
                except GeneratorExit:
                    return
                finally:
                    await inner.aclose()

        return generator
    if not inspect.iscoroutinefunction(function):
        raise ValidationError("function", function, "is not asynchronous: use the limit() of a SyncRateLimiter")
    terms = terms_of(function)

    @wraps(function)
    async def limited(*args: Any, **kwargs: Any) -> Any:
        async with terms.lease(args, kwargs) as lease:
            result = await function(*args, **terms.arguments(kwargs, lease))
            if settle is not None:
                await lease.settle(settle(result))
            return result

    return limited


def _refuse_settle(settle: Any, function: Any) -> None:
    if settle is not None:
        raise ValidationError(
            "settle", settle, f"is for results, and {function.__name__} yields: let it have a parameter 'lease'"
        )


def _template(value: Any, field: str) -> Callable[[Mapping[str, Any]], Any]:
    """A function of the named arguments."""
    if callable(value):
        return _of_named(value)
    if isinstance(value, str):
        return value.format_map if "{" in value else lambda named: value
    if type(value) is int:
        return lambda named: value
    raise ValidationError(field, value, "must be a value, text like '{user}', or a function of named arguments")


def _of_named(function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    """The same function, of all arguments of a call, of which it takes those that it names."""
    names = list(inspect.signature(function).parameters)
    return lambda named: function(**{name: named[name] for name in names})
