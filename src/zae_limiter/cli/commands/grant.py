"""``zae-limiter grant``: tokens given by an operator."""

from __future__ import annotations

import click

from zae_limiter.cli.completions import complete_entity
from zae_limiter.cli.options import as_usage_error, on_existing_store, principal_option
from zae_limiter.cli.session import Session


@click.command(
    "grant",
    epilog="""\b
Examples:
  zae-limiter grant key-1 gpt-4 tpm=5000 --key invoice-17
  zae-limiter grant acme gpt-4 usd_micros=5M --key invoice-18 --principal ann
  zae-limiter grant acme gpt-4 usd_micros=5M --key invoice-19 --above
""",
)
@click.argument("entity_id", metavar="ENTITY", shell_complete=complete_entity)
@click.argument("resource")
@click.argument("amounts", metavar="NAME=AMOUNT...", nargs=-1, required=True)
@click.option("--key", required=True, metavar="KEY", help="Repeated under the same key, it is done once.")
@click.option("--above", is_flag=True, help="Lift calendar limits above their burst, for the period that runs.")
@principal_option
@on_existing_store
def command(
    session: Session,
    entity_id: str,
    resource: str,
    amounts: tuple[str, ...],
    key: str,
    above: bool,
    principal: str | None,
) -> None:
    """Give an entity tokens on a resource, once per key.

    A bucket holds the burst of each limit at most; with --above a calendar limit holds so much more, until its next
    period begins. It is no usage: what was taken stays counted. The audit trail says who did it.
    """
    from zae_limiter.cli.argument_parsers import parse_amounts

    with as_usage_error():
        given = parse_amounts(amounts)
    done = session.limiter.grant(entity_id, resource, given, key=key, above=above, principal=principal)
    available = session.limiter.available(entity_id, resource)
    levels = ", ".join(f"{name} {available[name]:,}" for name in given if name in available)
    session.say(
        {"entity_id": entity_id, "resource": resource, "key": key, "done": done, "available": available},
        f"{entity_id} on {resource}: {levels}" + ("" if done else f" (was given before, as {key})"),
    )
