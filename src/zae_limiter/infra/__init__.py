"""A deployment on AWS: its template, its stack, its function, its health and its price.

``StackManager`` and ``StackOptions`` are what a program needs. They are imported when they are asked for: the price of
a deployment, or its template, needs neither.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zae_limiter.infra.stack_options import StackOptions as StackOptions
    from zae_limiter.infra.stacks import StackManager as StackManager

__all__ = ("StackManager", "StackOptions")

_HOME_OF = {"StackManager": "stacks", "StackOptions": "stack_options"}

if not TYPE_CHECKING:  # or every misspelled name would have a type

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
