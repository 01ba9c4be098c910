"""Keeping resources when their stack is deleted: CloudFormation leaves what its template says to retain.

So before a stack is deleted, its own template is rolled out once more with only that changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from zae_limiter.exceptions import StackOperationError

POLICY: Final = "DeletionPolicy"
RETAIN: Final = "Retain"

_SECTION: Final = re.compile(r"^(\w+):")
_INDENT: Final = re.compile(r"^( +)\S")


def with_retained(template: str | Mapping[str, Any], resources: Collection[str]) -> str:
    """The same template, in which these resources are retained."""
    if isinstance(template, str):
        return _in_yaml(template, resources)
    known: Mapping[str, Any] = template["Resources"]
    _all_found(resources, known)
    kept = {name: {**known[name], POLICY: RETAIN} for name in resources}
    return json.dumps({**template, "Resources": {**known, **kept}})


def _in_yaml(text: str, resources: Collection[str]) -> str:
    """The same lines, but for those that say what happens to these resources."""
    lines: list[str] = []
    found: set[str] = set()
    section, depth, inside = "", "", False
    for line in text.splitlines():
        if started := _SECTION.match(line):
            section, depth, inside = started[1], "", False
        indent = _INDENT.match(line)
        if section == "Resources" and indent and not line.lstrip().startswith("#"):
            depth = depth or indent[1]
            if indent[1] == depth:
                name = line.strip().removesuffix(":")
                inside = name in resources
                if inside:
                    found.add(name)
                    lines += [line, f"{depth * 2}{POLICY}: {RETAIN}"]
                    continue
            elif inside and re.match(rf"^{depth * 2}{POLICY}:", line):
                continue
        lines.append(line)
    _all_found(resources, found)
    return "\n".join(lines) + "\n"


def _all_found(resources: Collection[str], found: Collection[str]) -> None:
    missing = sorted(set(resources) - set(found))
    if missing:
        raise StackOperationError(f"the template of this stack does not show how to keep {', '.join(missing)}")
