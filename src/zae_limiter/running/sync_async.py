"""Sync and async methods from one plan.

A facade writes each method once, as a function that returns a plan. :func:`async_method` makes it the method of an
async class, :func:`sync_method` that of its sync counterpart, with the same name, parameters and docstring::

    class Base:
        def _get_entity(self, entity_id: str) -> Plan[Entity]: ...

    class Repository(Base):
        get_entity = awaited(Base._get_entity)        # async def get_entity(self, entity_id: str) -> Entity

    class SyncRepository(Base):
        get_entity = returned(Base._get_entity)       # def get_entity(self, entity_id: str) -> Entity
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar

from zae_limiter.running.plan import Plan

Arguments = ParamSpec("Arguments")
Owner = TypeVar("Owner")
Result = TypeVar("Result")


def async_method(
    plan_method: Callable[Concatenate[Owner, Arguments], Plan[Result]],
    *,
    to_the_end: bool = False,
) -> Callable[Concatenate[Owner, Arguments], Coroutine[Any, Any, Result]]:
    """The async method that runs the plan with the owner's ``_driver``; ``to_the_end``: whatever happens."""

    async def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return await self._driver.run(plan_method(self, *args, **kwargs), to_the_end=to_the_end)

    typed: Callable[Concatenate[Owner, Arguments], Coroutine[Any, Any, Result]]
    typed = _with_signature_of(method, plan_method)
    return typed


def sync_method(
    plan_method: Callable[Concatenate[Owner, Arguments], Plan[Result]],
    *,
    to_the_end: bool = False,
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """The sync method that runs the plan with the owner's ``_driver``; ``to_the_end``: whatever happens."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._driver.run(plan_method(self, *args, **kwargs), to_the_end=to_the_end)

    typed: Callable[Concatenate[Owner, Arguments], Result] = _with_signature_of(method, plan_method)
    return typed


def _with_signature_of(method: Any, plan_method: Any) -> Any:
    """Make ``method`` look as if it had been written out: name, docstring, signature, return type."""
    face = FunctionType(plan_method.__code__, plan_method.__globals__, plan_method.__name__.lstrip("_"))
    face.__defaults__ = plan_method.__defaults__
    face.__kwdefaults__ = plan_method.__kwdefaults__
    face.__annotations__ = dict(plan_method.__annotations__)
    face.__annotations__["return"] = face.__annotations__["return"].removeprefix("Plan[").removesuffix("]")
    method.__name__ = face.__name__
    method.__qualname__ = plan_method.__qualname__.replace(plan_method.__name__, face.__name__)
    method.__doc__ = plan_method.__doc__
    method.__module__ = plan_method.__module__
    method.__wrapped__ = face
    return method
