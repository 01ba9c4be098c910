"""``zae-limiter completion``: the completion script of a shell."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog="""\b
Examples:
  zae-limiter completion bash >> ~/.bashrc
  zae-limiter completion zsh >> ~/.zshrc
  zae-limiter completion fish > ~/.config/fish/completions/zae-limiter.fish
""",
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script for completion in a shell.

    It completes commands, options and the entities of the store; open a new shell to have it.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    click.echo(kind(root, {}, "zae-limiter", "_ZAE_LIMITER_COMPLETE").source())
