"""The template as CloudFormation sees it: parameters filled in, conditions decided, what is not made left out.

References to resources become words like ``<Table.Arn>``, except where a test says what they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from zae_limiter.infra.template import template_text

NOTHING = object()
STACK = "my-app"
PSEUDO = {
    "AWS::StackName": STACK,
    "AWS::Region": "eu-west-1",
    "AWS::AccountId": "123456789012",
    "AWS::NoValue": NOTHING,
}


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        return {name: value.split(".", 1) if suffix == "GetAtt" else value}
    assert isinstance(node, yaml.SequenceNode)
    return {name: loader.construct_sequence(node, deep=True)}


_Loader.add_multi_constructor("!", _short_form)


@cache
def loaded() -> dict[str, Any]:
    """The template with its functions as CloudFormation's JSON writes them."""
    template: dict[str, Any] = yaml.load(template_text(), _Loader)
    return template


class Resolved:
    """The template for these parameters; the others have their defaults."""

    def __init__(self, known: Mapping[str, str] | None = None, **parameters: str | int) -> None:
        template = loaded()
        self._known = known or {}
        self._declared = template["Parameters"]
        assert parameters.keys() <= self._declared.keys()
        self._values = {name: str(declared["Default"]) for name, declared in self._declared.items()}
        self._values |= {name: str(value) for name, value in parameters.items()}
        self._conditions = template["Conditions"]
        self._template = template
        self.resources: dict[str, Any] = self._section("Resources")
        self.outputs: dict[str, Any] = self._section("Outputs")

    def of_type(self, kind: str) -> dict[str, Any]:
        """The properties of all resources of a type that are made."""
        return {name: made["Properties"] for name, made in self.resources.items() if made["Type"] == kind}

    def properties(self, name: str) -> Any:
        return self.resources[name]["Properties"]

    def broken_rules(self) -> list[str]:
        """What the rules of the template say against these parameters."""
        return [
            assertion["AssertDescription"]
            for rule in self._template["Rules"].values()
            if self._decide(rule["RuleCondition"])
            for assertion in rule["Assertions"]
            if not self._decide(assertion["Assert"])
        ]

    def _section(self, section: str) -> dict[str, Any]:
        made = {
            name: {key: self._resolve(value) for key, value in entry.items() if key != "Condition"}
            for name, entry in self._template[section].items()
            if "Condition" not in entry or self._decide({"Condition": entry["Condition"]})
        }
        assert self._dangling(made) == set(), "something refers to what is not made"
        return made

    def _dangling(self, made: Mapping[str, Any]) -> set[str]:
        exist = self.resources if hasattr(self, "resources") else made
        return {name for name in re.findall(r"<(\w+)[.>]", repr(made)) if name not in exist}

    def _decide(self, test: Any) -> bool:
        ((function, arguments),) = test.items()
        if function == "Condition":
            return self._decide(self._conditions[arguments])
        if function == "Fn::Equals":
            left, right = (str(self._resolve(argument)) for argument in arguments)
            return left == right
        decided = [self._decide(argument) for argument in arguments]
        return {"Fn::And": all, "Fn::Or": any, "Fn::Not": lambda one: not one[0]}[function](decided)

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            return [item for each in value if (item := self._resolve(each)) is not NOTHING]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, arguments),) = value.items()
            if name == "Ref":
                return self._reference(arguments)
            if name == "Fn::GetAtt":
                return self._attribute(".".join(arguments))
            if name == "Fn::If":
                test, then, otherwise = arguments
                return self._resolve(then if self._decide({"Condition": test}) else otherwise)
            if name == "Fn::Sub":
                return re.sub(r"\$\{([^}]+)\}", lambda found: str(self._substitute(found[1])), arguments)
            if name == "Fn::Join":
                separator, parts = arguments
                return separator.join(self._resolve(parts))
            assert not name.startswith("Fn::"), name
        resolved = {key: self._resolve(inner) for key, inner in value.items()}
        return {key: inner for key, inner in resolved.items() if inner is not NOTHING}

    def _substitute(self, name: str) -> Any:
        return self._attribute(name) if "." in name else self._reference(name)

    def _reference(self, name: str) -> Any:
        if name in PSEUDO:
            return PSEUDO[name]
        if name in self._values:
            value = self._values[name]
            return value.split(",") if self._declared[name]["Type"] == "CommaDelimitedList" else value
        return self._attribute(name)

    def _attribute(self, name: str) -> str:
        return self._known.get(name, f"<{name}>")
