"""What a shell completes beside commands and options: the ids of entities, from the store that the words name.

A shell waits while it completes. So the store has a second, a list is read so far and no further, and whatever goes
wrong completes nothing: the command itself will say what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from zae_limiter import SyncRateLimiter

DEADLINE_S = 1.0
MOST_COMPLETED = 50
MOST_READ = 2_000


def complete_entity(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The entities whose ids begin so: created ones or, if none of them does, all that used anything."""
    try:
        with _limiter(context) as limiter:
            found = list(islice(_created(limiter, incomplete), MOST_COMPLETED))
            return found or list(islice(_active(limiter, incomplete), MOST_COMPLETED))
    except Exception:
        return []


def _limiter(context: click.Context) -> SyncRateLimiter:
    """A limiter on the store that was named so far, if that is there."""
    from zae_limiter import SyncRateLimiter
    from zae_limiter.cli.session import check_existence
    from zae_limiter.naming import DEFAULT_NAMESPACE
    from zae_limiter.stores.open_store import open_store

    url = context.params.get("url")
    store = open_store(url, deadline=DEADLINE_S, config_cache_ttl=0, options={})
    check_existence(store, named=True)
    namespace = context.params.get("namespace") or DEFAULT_NAMESPACE
    return SyncRateLimiter.open(url, namespace=namespace, deadline=DEADLINE_S)


def _created(limiter: SyncRateLimiter, incomplete: str) -> Iterator[CompletionItem]:
    from zae_limiter.cli.pages import Pages

    pages = Pages(lambda size, cursor: limiter.list_entities(limit=size, cursor=cursor), MOST_READ)
    for entity in pages.items():
        if entity.id.startswith(incomplete):
            yield CompletionItem(entity.id, help=entity.name)


def _active(limiter: SyncRateLimiter, incomplete: str) -> Iterator[CompletionItem]:
    return (CompletionItem(name) for name in limiter.list_active_entities() if name.startswith(incomplete))
