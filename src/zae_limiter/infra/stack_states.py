"""What may be done with a stack in each of its states: the policy of deploying and deleting, as a table.

CloudFormation does one operation at a time on a stack, and a client may die at any moment of it. So the next client
starts from the state: an operation under way is waited for, the remains of a failed creation are removed, a failed
rollback of an update is finished first, and what a person has to look at is refused with the reason.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Step(Enum):
    """What deploying does next."""

    CREATE = "create it"
    UPDATE = "update it"
    WAIT = "wait until CloudFormation is done"
    CLEAR = "remove the remains of a creation that failed, then create it"
    MEND = "finish rolling back an update, then update it"
    REFUSE = "leave it to a person"


GONE: Final = "DELETE_COMPLETE"
IN_PROGRESS: Final = "_IN_PROGRESS"
REVIEW: Final = "REVIEW_IN_PROGRESS"
"""A change set was made for a stack that does not exist yet, and was not carried out."""

STEPS: Final = {
    GONE: Step.CREATE,
    REVIEW: Step.CREATE,
    "CREATE_COMPLETE": Step.UPDATE,
    "UPDATE_COMPLETE": Step.UPDATE,
    "UPDATE_FAILED": Step.UPDATE,
    "UPDATE_ROLLBACK_COMPLETE": Step.UPDATE,
    "IMPORT_COMPLETE": Step.UPDATE,
    "IMPORT_ROLLBACK_COMPLETE": Step.UPDATE,
    "ROLLBACK_COMPLETE": Step.CLEAR,
    "UPDATE_ROLLBACK_FAILED": Step.MEND,
    "CREATE_FAILED": Step.REFUSE,
    "ROLLBACK_FAILED": Step.REFUSE,
    "DELETE_FAILED": Step.REFUSE,
    "IMPORT_ROLLBACK_FAILED": Step.REFUSE,
}

ADVICE: Final = {
    "CREATE_FAILED": "its creation failed and was left as it is; look at it, then delete it and deploy again",
    "ROLLBACK_FAILED": "its creation failed and could not be undone, perhaps because its table is protected; remove "
    "what is left with: zae-limiter delete --name {name} --lift-protection, then deploy again",
    "DELETE_FAILED": "it is half deleted; finish that with: zae-limiter delete --name {name}",
    "IMPORT_ROLLBACK_FAILED": "an import failed and could not be undone; repair it in the console of CloudFormation",
}

HEALTHY: Final = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"})
"""Everything is as it was last asked for; so ends the execution of a change set that went well."""


def step_from(state: str | None) -> Step:
    """What deploying does with a stack in this state; ``None``: there is no stack."""
    if state is None:
        return Step.CREATE
    if state in STEPS:
        return STEPS[state]
    return Step.WAIT if state.endswith(IN_PROGRESS) else Step.REFUSE


def is_idle(state: str) -> bool:
    """Whether nothing is under way."""
    return state == REVIEW or not state.endswith(IN_PROGRESS)


def advice_for(name: str, state: str) -> str:
    """What a person should do about a stack that deploying refuses."""
    return ADVICE.get(state, "zae-limiter does not know this state; look at it in the console").format(name=name)
