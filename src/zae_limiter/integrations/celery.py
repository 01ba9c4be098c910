"""Limits for the tasks of Celery, over all workers: its own ``rate_limit`` is one number, and each worker's.

::

    @app.task(base=LimitedTask, limiter=open_limiter, entity="{team}", resource="gpt-4", consume={"rpm": 1})
    def ask(team, prompt): ...

A task that lacks tokens waits a moment, and then goes back to the queue until it fits: no worker is held up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from celery import Task

from zae_limiter import RateLimitExceeded, RequestExceedsBurst, SyncLease, SyncRateLimiter, ValidationError

__all__ = ["LimitedTask", "current_lease"]

_LEASE: ContextVar[SyncLease | None] = ContextVar("zae_limiter_task_lease", default=None)


def current_lease() -> SyncLease | None:
    """The lease of the task that is being run; ``None`` if it is not limited."""
    return _LEASE.get()


class LimitedTask(Task):  # type: ignore[misc]
    """A base for tasks. Its attributes are options of ``@app.task``.

    ``limiter`` is a limiter, or a function that returns the one of this process (a worker forks: open it there).
    ``entity``, ``resource`` and ``consume`` are values, text with names of arguments in braces, or functions of the
    task's arguments. ``longest_wait`` is how many seconds a worker waits before the task goes back to the queue, and
    ``max_limit_retries`` how often it may (``None``: as often as it takes).
    """

    abstract = True
    limiter: SyncRateLimiter | Callable[[], SyncRateLimiter] | None = None
    entity: str | Callable[..., str] = "celery"
    resource: str | Callable[..., str] = "celery"
    consume: Mapping[str, int] | Callable[..., Mapping[str, int]] = {"requests": 1}  # noqa: RUF012 (never changed)
    longest_wait: float = 0.5
    max_limit_retries: int | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task, or put it back."""
        lease = self._limiter().acquire(
            self._told("entity", args, kwargs),
            self._told("resource", args, kwargs),
            self._told("consume", args, kwargs),
            timeout=self.longest_wait,
        )
        try:
            lease.__enter__()
        except RequestExceedsBurst:
            raise
        except RateLimitExceeded as error:
            if self.request.called_directly:
                raise
            raise self.retry(
                countdown=error.retry_after_seconds, max_retries=self.max_limit_retries, exc=error
            ) from error
        token = _LEASE.set(lease)
        failure: BaseException | None = None
        try:
            return super().__call__(*args, **kwargs)
        except BaseException as error:
            failure = error
            raise
        finally:
            _LEASE.reset(token)
            lease.__exit__(None if failure is None else type(failure), failure, None)

    def _limiter(self) -> SyncRateLimiter:
        found = self._attribute("limiter")
        limiter = found() if callable(found) else found
        if not isinstance(limiter, SyncRateLimiter):
            raise ValidationError("limiter", limiter, f"must be a SyncRateLimiter, for the task {self.name}")
        return limiter

    def _told(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute, for one call."""
        found = self._attribute(name)
        if callable(found):
            return found(*args, **kwargs)
        if isinstance(found, str) and "{" in found:
            bound = inspect.signature(self.run).bind(*args, **kwargs)
            bound.apply_defaults()
            return found.format(**bound.arguments, task=self)
        return found

    def _attribute(self, name: str) -> Any:
        """What the task was told; a function as it was given, and not as a method."""
        found = inspect.getattr_static(type(self), name)
        return found.__func__ if isinstance(found, staticmethod) else found
