"""What the reference has to be told about our code, which is read and not run.

- A method that is made by ``awaited`` or ``returned`` looks like an attribute. It becomes the method that it is.
- A method that a limiter has from ``LimiterVerbs[Lease]`` returns a ``Lease``, not the variable that stands for it.
- Docstrings are written for ``help()``; their roles (``:class:`X```), ``::`` and ``>>>`` become Markdown.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|mod|attr|data|exc):`~?([^`]+)`")
_LITERAL_BLOCK = re.compile(r"::[ ]*$", re.MULTILINE)
_SESSION = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_MADE_BY = {"awaited": {"async"}, "returned": set[str]()}


class Ours(griffe.Extension):
    """Looks through the package once it is loaded."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Methods first, so that their docstrings are among those rewritten."""
        for each_class in _classes_of(pkg):
            for name, member in list(each_class.members.items()):
                if isinstance(member, griffe.Attribute) and (method := _method_behind(member)):
                    each_class.set_member(name, method)
            for method in _methods_with_a_lease(each_class):
                each_class.set_member(method.name, method)
        for each in _everything_in(pkg):
            if each.docstring is not None:
                each.docstring.value = _as_markdown(each.docstring.value)


def _as_markdown(text: str) -> str:
    text = _LITERAL_BLOCK.sub(":", _ROLE.sub(r"`\1`", text))
    return _SESSION.sub(lambda session: f"```pycon\n{session[0]}\n```", text)


def _classes_of(module: griffe.Module) -> list[griffe.Class]:
    return [each for each in _everything_in(module) if isinstance(each, griffe.Class)]


def _everything_in(place: griffe.Object) -> list[griffe.Object]:
    """A place and all below it, without what is only imported there."""
    found: list[griffe.Object] = [place]
    for member in place.members.values():
        if isinstance(member, griffe.Object):
            found += _everything_in(member)
    return found


def _method_behind(attribute: griffe.Attribute) -> griffe.Function | None:
    """The method that ``name = awaited(Owner._name)`` stands for."""
    call = attribute.value
    if not isinstance(call, griffe.ExprCall) or (maker := str(call.function)) not in _MADE_BY:
        return None
    owner, _, name = str(call.arguments[0]).rpartition(".")
    written = attribute.modules_collection[attribute.resolve(owner)].members[name]
    method = _copy(written, attribute.name, returns=_what_the_plan_returns(written.returns))
    method.labels |= _MADE_BY[maker]
    return method


def _methods_with_a_lease(limiter: griffe.Class) -> list[griffe.Function]:
    """What a limiter has from ``LimiterVerbs[Lease]`` and says ``SomeLease`` of, saying ``Lease``."""
    return [
        _copy(written, written.name, returns=base.slice)
        for base in limiter.bases
        if isinstance(base, griffe.ExprSubscript) and str(base.left) == "LimiterVerbs"
        for written in limiter.modules_collection[limiter.resolve("LimiterVerbs")].members.values()
        if isinstance(written, griffe.Function) and str(written.returns) == "SomeLease"
    ]


def _copy(written: Any, name: str, returns: Any) -> griffe.Function:
    return griffe.Function(
        name,
        lineno=written.lineno,
        endlineno=written.endlineno,
        parameters=written.parameters,
        returns=returns,
        docstring=written.docstring and griffe.Docstring(written.docstring.value, parent=written),
    )


def _what_the_plan_returns(plan: Any) -> Any:
    """``Plan[X]`` is an ``X`` to the caller."""
    return plan.slice if isinstance(plan, griffe.ExprSubscript) and str(plan.left) == "Plan" else plan
