"""Pages of the site that are written from the code: reference, commands, examples, benchmarks.

Nothing here needs mkdocs, so that the tests can ask what there will be.
"""

from __future__ import annotations

import ast
import posixpath
import re
from enum import Enum
from pathlib import Path

import click

import zae_limiter
from zae_limiter import testing
from zae_limiter.cli.group import SECTIONS, cli

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BENCHMARKS = ROOT / "benchmarks"

PARTS = {
    "limiters": ("Limiters", "What an application holds on to: one for asyncio, one for threads."),
    "leases": ("Leases", "Tokens held for the length of a `with` block."),
    "repositories": ("Repositories", "The data without `acquire`: entities, limits, namespaces, reports."),
    "values": ("Values", "What methods take and give."),
    "deployments": (
        "Deployments",
        "Deployments on AWS from Python, a cloud on your machine, policies, prices and migrations: what `deploy`, "
        "`local`, `cost` and `migrate` of the [command line](../cli.md#deployments) do. No application needs them.",
    ),
    "errors": ("Errors", "One family. [Names](../api.md#errors) lists them by what to do."),
    "testing": ("For tests", "What [tests of your code](../testing.md) need."),
}
"""The pages of the reference: title, and first sentence."""

DEPLOYMENTS = {
    "zae_limiter.infra": ("stacks.StackManager", "stack_options.StackOptions"),
    "zae_limiter.infra.stacks": ("DeployResult",),
    "zae_limiter.infra.deployments": ("Deployment",),
    "zae_limiter.infra.health": ("Health",),
    "zae_limiter.infra.policies": ("policy_document",),
    "zae_limiter.infra.local_cloud": ("LocalCloud", "UpResult", "Status"),
    "zae_limiter.infra.costs": ("monthly_bill", "per_acquire", "Load", "Prices", "Bill", "Item", "Units"),
    "zae_limiter.migrations": ("migrate", "table_migration.Report", "table_migration.Progress"),
}
"""What operators' programs import, by where from, and in which module below it is defined."""

FIRST = (
    "Limit",
    "ZAELimiterError",
    "RateLimitExceeded",
    "RequestExceedsBurst",
    "RateLimiterUnavailable",
    "ValidationError",
)
"""What most readers of a page look for; the rest follows in the order of the code."""

FENCES = {".mjs": "javascript", ".service": "ini", ".yaml": "yaml"}
"""How the files of an example that is a folder are coloured."""

_PART_OF = {
    "limiter": "limiters",
    "lease": "leases",
    "repository": "repositories",
    "stores": "repositories",
    "calendars": "values",
    "models": "values",
    "exceptions": "errors",
}


def written_pages() -> dict[str, str]:
    """Every such page: where it will be, and its Markdown."""
    return {
        **reference_pages(),
        "reference/commands.md": commands_page(),
        **example_pages(),
        "benchmarks/REPORT.md": (BENCHMARKS / "REPORT.md").read_text(encoding="utf-8"),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }


def pictures() -> dict[str, Path]:
    """Every picture that such a page shows: where it will be, and where it is."""
    return {f"benchmarks/plots/{plot.name}": plot for plot in sorted((BENCHMARKS / "plots").glob("*.png"))}


# The reference


def reference_pages() -> dict[str, str]:
    """A page for each part of the library, which mkdocstrings fills from the docstrings."""
    names: dict[str, list[str]] = {part: [] for part in PARTS}
    for home, public in zae_limiter._HOMES.items():
        names[_PART_OF[home.partition(".")[0]]] += [f"zae_limiter.{home}.{name}" for name in public]
    for name in testing.__all__:
        names["testing"].append(f"{getattr(testing, name).__module__}.{name}")
    pages = {f"reference/{part}.md": _reference_page(part, of_part) for part, of_part in names.items()}
    return pages | {"reference/deployments.md": _deployments_page()}


def _deployments_page() -> str:
    title, first = PARTS["deployments"]
    entries = []
    for module, names in DEPLOYMENTS.items():
        bare = ", ".join(name.rpartition(".")[2] for name in names)
        entries.append(f"```python\nfrom {module} import {bare}\n```")
        entries += [f"::: {module}.{name}\n    options:\n      show_if_no_docstring: true" for name in names]
    return "\n\n".join([f"# {title}", first, *entries]) + "\n"


def _reference_page(part: str, names: list[str]) -> str:
    title, first = PARTS[part]
    return "\n\n".join([f"# {title}", first, *map(_entry, sorted(names, key=_place))]) + "\n"


def _place(name: str) -> int:
    """Where a name stands among others; a stable sort leaves the rest as it is."""
    bare = name.rpartition(".")[2]
    return FIRST.index(bare) if bare in FIRST else len(FIRST)


def _entry(name: str) -> str:
    """Where mkdocstrings puts what it knows of a name, and how.

    Of choices and tuples also what has no docstring is shown; of limiters, ``acquire`` first.
    """
    kind = getattr(zae_limiter, name.rpartition(".")[2], None)
    if isinstance(kind, type) and issubclass(kind, (Enum, tuple)):
        return f"::: {name}\n    options:\n      show_if_no_docstring: true"
    if isinstance(kind, type) and hasattr(kind, "acquire"):
        return f"::: {name}\n    options:\n      members: [{', '.join(_acquire_first(kind))}]"
    return f"::: {name}"


def _acquire_first(limiter: type) -> list[str]:
    """The methods of a limiter in the order of its classes, but what it is there for before all others."""
    public = (name for kind in limiter.__mro__ for name in vars(kind) if not name.startswith("_"))
    return list(dict.fromkeys(["acquire", *public]))


# Commands


def commands_page() -> str:
    """Every command with its arguments, options and examples, as ``--help`` has them."""
    lines = [
        "# Every command",
        "",
        "Written from the commands themselves. [Command line](../cli.md) is the guide.",
        "",
    ]
    root = click.Context(cli, info_name="zae-limiter")
    for section, names in SECTIONS.items():
        lines += [f"## {section}", ""]
        for name in names:
            command = cli.get_command(root, name)
            assert command is not None
            lines += _command_lines(command, click.Context(command, parent=root, info_name=name), level=3)
    return "\n".join(lines)


def _command_lines(command: click.Command, ctx: click.Context, level: int) -> list[str]:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    lines = [f"{'#' * level} {ctx.command_path}", "", *_prose(command.help or ""), "", "```text", usage, "```", ""]
    records = [param.get_help_record(ctx) for param in command.params if not _is_help(param)]
    if shown := [record for record in records if record and record[1]]:
        lines += ["| Option | |", "|---|---|", *(f"| {_code(option)} | {_cell(text)} |" for option, text in shown), ""]
    if examples := [line.strip() for line in (command.epilog or "").splitlines() if "zae-limiter" in line]:
        lines += ["```console", *(f"$ {example}" for example in examples), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            lines += _command_lines(below, click.Context(below, parent=ctx, info_name=name), level + 1)
    return lines


def _is_help(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and "--help" in param.opts


def _prose(text: str) -> list[str]:
    """Help as Markdown: paragraphs, and what was set by hand (after ``\\b``) as it stands."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.lstrip().startswith("\b"):
            lines += ["```text", *paragraph.replace("\b", "").strip("\n").splitlines(), "```", ""]
        else:
            lines += [_cell(" ".join(paragraph.split())), ""]
    return lines


def _code(text: str) -> str:
    return f"<code>{_cell(text)}</code>"


def _cell(text: str) -> str:
    """Words that Markdown must not take for anything else."""
    for sign, name in (
        ("&", "amp"),
        ("<", "lt"),
        (">", "gt"),
        ("|", "#124"),
        ("*", "#42"),
        ("_", "#95"),
        ("[", "#91"),
    ):
        text = text.replace(sign, f"&{name};")
    return text


# Examples


def example_pages() -> dict[str, str]:
    """The list of examples, and a page for each: what it says of itself, then its code; a folder is one."""
    pages = {"examples/README.md": (EXAMPLES / "README.md").read_text(encoding="utf-8")}
    for example in sorted([*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.yaml")]):
        text = example.read_text(encoding="utf-8")
        if example.suffix == ".py":
            opening, code = apart(text)
            shown = f"{opening}\n\n```console\n$ python examples/{example.name}\n```\n\n```python\n{code}```"
        else:
            shown = f"```yaml\n{text}```"
        pages[f"examples/{example.stem}.md"] = f"# {example.name}\n\n{shown}\n"
    for folder in sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and not path.name.startswith("_")):
        files = sorted(path for path in folder.iterdir() if path.is_file())
        shown = "\n\n".join(
            f"## {file.name}\n\n```{FENCES[file.suffix]}\n{file.read_text(encoding='utf-8')}```" for file in files
        )
        pages[f"examples/{folder.name}.md"] = f"# {folder.name}\n\n{shown}\n"
    return pages


def apart(program: str) -> tuple[str, str]:
    """The docstring of a program, and the code below it."""
    opening = ast.parse(program).body[0]
    code = "".join(program.splitlines(keepends=True)[opening.end_lineno :])
    return ast.get_docstring(ast.parse(program)) or "", code.lstrip("\n")


# Links


def where_the_site_has(path: str) -> list[str]:
    """Pages that may show a file of the repository."""
    inside = path.removeprefix("../").removeprefix("docs/")
    stem = posixpath.splitext(inside)[0]
    if not inside.startswith("examples/"):
        return [inside, inside.lower()]
    return [inside, f"{stem}.md", f"{posixpath.dirname(inside)}.md", inside.lower()]
