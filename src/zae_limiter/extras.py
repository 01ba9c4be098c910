"""How an optional part is installed, as every message says it.

The name of this project belongs to another one on PyPI, so no message may send a reader there: what is installed comes
from a clone, or from a wheel that was built in one.
"""

from __future__ import annotations


def install_command(extra: str) -> str:
    """What an operator types to have the packages of an extra."""
    return f"pip install '.[{extra}]' in a clone of zae-limiter"
