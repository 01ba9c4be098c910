"""``zae-limiter cfn-template``: the template of a deployment, for other ways to deploy it."""

from __future__ import annotations

import click


@click.command(
    "cfn-template",
    epilog="""\b
Examples:
  zae-limiter cfn-template > zae-limiter.yaml
  zae-limiter cfn-template --output zae-limiter.yaml
""",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    show_default="standard output",
    metavar="FILE",
    help="Where to write it; - for standard output.",
)
def command(output: str) -> None:
    """Print the CloudFormation template of a deployment.

    It is what `zae-limiter deploy` deploys. Its parameters describe themselves, and all of them have defaults. The
    function's code comes from S3: `zae-limiter lambda-export` makes it.
    """
    from zae_limiter.infra.template import template_text

    try:
        with click.open_file(output, "w", encoding="utf-8") as file:
            file.write(template_text())
    except OSError as error:
        if output == "-":
            raise
        raise click.FileError(output, error.strerror) from None
