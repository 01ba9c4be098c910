"""``name=amount`` pairs: how many tokens of which limit."""

from __future__ import annotations

import re
from collections.abc import Iterable

from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import check_amount, check_limit_name

_WHOLE = re.compile(r"[0-9]+(?:_[0-9]+)*")
_MOST_DIGITS = 20


def parse_amounts(pairs: Iterable[str]) -> dict[str, int]:
    """The amounts by limit. Raises ``ValidationError``, which shows the right form."""
    amounts: dict[str, int] = {}
    for pair in pairs:
        name, sign, digits = pair.partition("=")
        if not sign or not _WHOLE.fullmatch(digits) or len(digits) > _MOST_DIGITS:
            raise ValidationError("amount", pair, "must be name=amount with a whole number, like rpm=1 or tpm=500")
        if check_limit_name(name, "amount") in amounts:
            raise ValidationError("amount", pair, f"names {name} twice")
        amounts[name] = check_amount(int(digits), name)
    return amounts
