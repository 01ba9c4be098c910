"""Expressions drawn at random: conditions about half of which hold, and right-hand sides of updates."""

from __future__ import annotations

import random
from typing import Any

from zae_limiter.stores.dynamodb.items import RECENT_WRITERS
from zae_limiter.stores.dynamodb.schema import encode

LIMITS = ("rpm", "tpm", "wcu")
COUNTERS = tuple(f"b_{limit}_{field}" for limit in LIMITS for field in ("tk", "tc"))
NUMBERS = (*COUNTERS, "rf", "ttl", "ev", "shard_count", "b_new_tk")
TEXTS = ("cv", "inc", *RECENT_WRITERS, "parent_id", "entity_id")
ODD_NUMBERS = ("007", "-0", "1e3", "0.50", "-12.5", "9" * 38, "-" + "1" * 38, "1" + "0" * 40)


class Expressions:
    """The placeholders of one request."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names: dict[str, str] = {}
        self.values: dict[str, dict[str, Any]] = {}

    def name(self, attribute: str) -> str:
        for alias, name in self.names.items():
            if name == attribute and self.rng.random() < 0.9:
                return alias
        alias = f"#n{len(self.names)}"
        self.names[alias] = attribute
        return alias

    def value(self, value: dict[str, Any]) -> str:
        placeholder = f":v{len(self.values)}"
        self.values[placeholder] = value
        return placeholder

    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = {}
        if self.names:
            params["ExpressionAttributeNames"] = self.names
        if self.values:
            params["ExpressionAttributeValues"] = self.values
        return params


class Words:
    """Draws values and expressions. Values are near what the item holds."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.odd = False
        """Whether an odd number was drawn since this was last reset."""
        self.calm = False
        """Whether conditions are drawn that mostly hold."""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # Values

    def number(self, near: dict[str, Any] | None = None) -> dict[str, Any]:
        rng = self.rng
        if self.chance(0.004):
            self.odd = True
            return {"N": rng.choice(ODD_NUMBERS)}
        text = (near or {}).get("N", "")
        if text.lstrip("-").isdigit() and len(text) < 30 and self.chance(0.85):
            return encode(int(text) + rng.choice((0, 0, 0, 1, -1, 1000, -1000, rng.randrange(-(10**6), 10**6))))
        return encode(rng.choice((0, 1, -1, 1000, 60_000, 1_700_000_000_000, rng.randrange(-(10**12), 10**12))))

    def text(self, near: dict[str, Any] | None = None) -> dict[str, Any]:
        known = (near or {}).get("S")
        if known and self.chance(0.6):
            return {"S": known}
        return {"S": self.rng.choice(("a", "b", "-", "", "é", "1.0.0.0.0", f"18bcfe5.{self.rng.randrange(100):x}"))}

    def any_value(self) -> dict[str, Any]:
        return self.rng.choice(
            (self.number(), self.text(), {"BOOL": True}, {"NULL": True}, encode([1, "a"]), encode({"k": 1, "l": "é"}))
        )

    # Conditions

    def guard(self, asked: Expressions, item: dict[str, Any]) -> str:
        """What every write of a bucket demands; it mostly holds."""
        rng = self.rng
        parts = []
        for name in ("rf", "cv", "shard_count"):
            value = item.get(name, {"N": "0"})
            wrong = encode(rng.randrange(9)) if self.chance(0.04) else value
            parts.append(f"{asked.name(name)} = {asked.value(wrong)}")
        mark = asked.value({"S": f"m{rng.randrange(9)}" if self.chance(0.1) else "fresh"})
        parts += [f"{asked.name(place)} <> {mark}" for place in RECENT_WRITERS]
        for name in rng.sample(COUNTERS, 2):
            have = item.get(name, {}).get("N", "0")
            margin = rng.choice((-1000, -1, 0, 0, 1)) if have.lstrip("-").isdigit() else 0
            operator = rng.choice((">=", "<=")) if margin == 0 else ">=" if margin < 0 else "<="
            near = encode(int(have) + margin) if have.lstrip("-").isdigit() else {"N": have}
            parts.append(f"{asked.name(name)} {operator} {asked.value(near)}")
        if self.chance(0.3):
            known = asked.value(item.get(rng.choice(RECENT_WRITERS), {"S": "-"}))
            parts.append(f"({' OR '.join(f'{asked.name(place)} = {known}' for place in RECENT_WRITERS)})")
        return " AND ".join(parts)

    def condition(self, asked: Expressions, item: dict[str, Any], depth: int = 0) -> str:
        if not depth and "rf" in item and self.chance(0.95 if self.calm else 0.5):
            return self.guard(asked, item)
        if self.calm:
            return f"attribute_{'exists' if item else 'not_exists'}({asked.name('PK')})"
        if depth < 2 and self.chance(0.45):
            parts = [self.condition(asked, item, depth + 1) for _ in range(self.rng.randrange(2, 4))]
            joined = self.rng.choice((" AND ", " AND ", " OR ")).join(parts)
            return f"({joined})" if depth else joined
        comparison = self.comparison(asked, item)
        return f"NOT {comparison}" if self.chance(0.08) else comparison

    def comparison(self, asked: Expressions, item: dict[str, Any]) -> str:
        rng = self.rng
        kind = rng.choices(range(9), (30, 12, 12, 8, 5, 4, 4, 3, 3))[0]
        number, text = rng.choice(NUMBERS), rng.choice(TEXTS)
        if kind == 0:
            operator = rng.choice(("=", "<>", "<", "<=", ">", ">="))
            return f"{asked.name(number)} {operator} {asked.value(self.number(item.get(number)))}"
        if kind == 1:
            operator = rng.choice(("=", "<>", "<>", "<", ">="))
            return f"{asked.name(text)} {operator} {asked.value(self.text(item.get(text)))}"
        if kind == 2:
            function = rng.choice(("attribute_exists", "attribute_not_exists"))
            return f"{function}({asked.name(rng.choice((number, text, 'PK')))})"
        if kind == 3:
            low, high = sorted(int(self.plain(item.get(number))) for _ in range(2))
            return f"{asked.name(number)} BETWEEN {asked.value(encode(low))} AND {asked.value(encode(high))}"
        if kind == 4:
            choices = ", ".join(asked.value(self.number(item.get(number))) for _ in range(3))
            return f"{asked.name(number)} IN ({choices})"
        if kind == 5:
            prefix = item.get(text, {}).get("S", "x")[: rng.randrange(1, 4)]
            return f"begins_with({asked.name(text)}, {asked.value({'S': prefix or 'x'})})"
        if kind == 6:
            operator = rng.choice(("=", "<>", "<", ">="))
            return f"size({asked.name(text)}) {operator} {asked.value(encode(rng.randrange(12)))}"
        if kind == 7:
            return f"attribute_type({asked.name(number)}, {asked.value({'S': rng.choice('NS')})})"
        present = [name for name in (*NUMBERS, *TEXTS) if name in item]
        if len(present) < 2:
            return f"contains({asked.name(text)}, {asked.value({'S': '1'})})"
        one, other = rng.sample(present, 2)
        return f"{asked.name(one)} {rng.choice(('=', '<>', '<', '>='))} {asked.name(other)}"

    def plain(self, near: dict[str, Any] | None) -> str:
        text: str = self.number(near)["N"]
        return text if text.lstrip("-").isdigit() and len(text) < 30 else "5"

    def assigned(self, asked: Expressions, name: str, item: dict[str, Any]) -> str:
        kind = self.rng.choices(range(5), (50, 15, 15, 10, 10))[0]
        known = [other for other in NUMBERS if other in item]
        other = self.rng.choice(known) if known and self.chance(0.97) else "nothing"
        if kind == 0:
            return asked.value(self.number(item.get(name)))
        if kind == 1:
            return f"if_not_exists({asked.name(name)}, {asked.value(self.number())})"
        if kind == 2:
            return f"{asked.name(other)} {self.rng.choice('+-')} {asked.value(self.number())}"
        if kind == 3:
            return asked.name(other)
        return f"if_not_exists({asked.name(name)}, {asked.value(encode(0))}) + {asked.value(self.number())}"
