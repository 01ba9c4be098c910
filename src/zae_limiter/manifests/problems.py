"""What is wrong with a manifest: every problem at its place, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.manifests.model import Place

MOST_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A mistake in a manifest, and what would be right."""

    place: Place
    message: str


class ManifestError(ZAELimiterError):
    """A manifest cannot be used. Nothing was changed. ``problems`` has everything that is wrong with it."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(set(problems)))
        super().__init__(source, self.problems)

    @property
    def lines(self) -> list[str]:
        """One line per problem, as editors and terminals can follow it: ``file:line:column: what``."""
        return [
            f"{self.source}:{problem.place.line}:{problem.place.column}: {problem.message}"
            for problem in self.problems
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def shown(value: str) -> str:
    """A piece of foreign text within a message: quoted, on one line, not too long."""
    cut = value if len(value) <= MOST_SHOWN_CHARACTERS else value[: MOST_SHOWN_CHARACTERS - 1] + "…"
    return repr(cut) if cut.isprintable() else ascii(cut)


def suggestion(word: str, known: Iterable[str]) -> str:
    """What a misspelled word may have meant, else what there is to choose from."""
    choices = list(known)
    close = get_close_matches(word[:MOST_SHOWN_CHARACTERS], choices, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(choices)}"
