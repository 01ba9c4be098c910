"""Why there may be no usage yet: on DynamoDB it is counted by an aggregator, which somebody has to run."""

from __future__ import annotations

from zae_limiter.cli.session import Session, note
from zae_limiter.exceptions import ZAELimiterError

WHO_COUNTS = "an aggregator counts it: the stack's Lambda, or 'zae-limiter aggregate'"


def hint_at_aggregator(session: Session, entity_id: str | None, resource: str | None) -> None:
    """After no usage was found, say to a person who would have to count it, if nobody has.

    Of an entity that can be known, from what its buckets say. Of a resource it cannot. A hint that is not to be had is
    none: the command has answered.
    """
    from zae_limiter.stores.dynamodb.errors import table_client_of

    if session.as_json or table_client_of(session.store) is None:
        return
    if entity_id is None:
        note(f"usage of a DynamoDB table is not there at once; {WHO_COUNTS}")
        return
    try:
        with session.patience("comparing"):
            proof = session.limiter.verify_usage(entity_id, resource)
    except ZAELimiterError:
        return
    if any(chain.behind for chain in proof.chains):
        note(f"{entity_id} has used something that is not counted yet; {WHO_COUNTS}")
