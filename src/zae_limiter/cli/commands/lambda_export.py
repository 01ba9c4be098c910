"""``zae-limiter lambda-export``: the function's package, for other ways to deploy it."""

from __future__ import annotations

import sys

import click

from zae_limiter.cli.session import note


@click.command(
    "lambda-export",
    epilog="""\b
Examples:
  zae-limiter lambda-export
  zae-limiter lambda-export --output build/aggregator.zip
""",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="zae-limiter-aggregator.zip",
    show_default=True,
    metavar="FILE",
    help="Where to write it; - for standard output.",
)
def command(output: str) -> None:
    """Write the package of the aggregator's Lambda function.

    A zip of this library's own code, without anything third-party. The same version gives the same bytes. Put it into
    a bucket and name it to the template as CodeBucket and CodeKey; `zae-limiter deploy` does all that by itself.
    """
    from zae_limiter.infra.lambda_builder import HANDLER, build_lambda_package
    from zae_limiter.infra.template import code_key

    if output == "-" and sys.stdout.isatty():
        raise click.UsageError("a zip cannot be shown on a terminal; name a file with --output")
    package = build_lambda_package()
    try:
        with click.open_file(output, "wb") as file:
            file.write(package)
    except OSError as error:
        if output == "-":
            raise
        raise click.FileError(output, error.strerror) from None
    if output != "-":
        note(f"wrote {output}: {len(package):,} bytes; handler {HANDLER}, in a bucket best under {code_key(package)}")
