"""The CloudFormation template of a deployment, and how to deploy it.

``cfn_template.yaml`` beside this file is the template. Its parameters describe themselves; all of them have defaults,
so that a stack can be made with none given. It makes IAM resources with names, so CloudFormation wants the capability
:data:`CAPABILITY`.

**How the function's code comes in.** CloudFormation takes it from S3, under the key in the parameter ``CodeKey``; what
runs is therefore always what the stack says, and a roll-back brings the code back with the rest. There is no
placeholder: as long as ``CodeKey`` is empty the stack has everything but the function and what hangs on it. The bucket
is the stack's own (output ``BucketName``), unless ``CodeBucket`` names another. So:

1. The first time: make the stack without ``CodeKey``. It comes with the table, the bucket and the policies.
2. Put the package (:func:`~zae_limiter.infra.lambda_builder.build_lambda_package`) into the bucket, under
   :func:`code_key`. The name is made of the content: a package that is there already need not be put again.
3. Update the stack with that ``CodeKey``. The function begins at the oldest record of the stream, so nothing that was
   taken between the steps is lost.

Any later time the bucket is there: put the package first, then one update of the stack does everything. An upgrade
is the same with all other parameters as they were (``UsePreviousValue``); the function is updated in place.

Without the function (``EnableAggregator=false``) there is no bucket either, and one step is enough. Without IAM
(``CreateIam=false``) the function needs ``AggregatorRoleArn``; a rule of the template says so.

**How a deployment is found.** Stack and resources carry the tags of :func:`stack_tags`; the template puts
:data:`STACK_TAG` on what it makes, and the deploying client puts all of them on the stack.

**Deleting.** A bucket that is not empty is not deleted by CloudFormation: empty it first, with all versions, if the
archive may go. A table with ``DeletionProtection=true``, the default, is not deleted either, not even when the
creation of the stack fails: turn the protection off first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from zae_limiter.exceptions import ValidationError
from zae_limiter.version import __version__

CAPABILITY: Final = "CAPABILITY_NAMED_IAM"

STACK_TAG: Final = "zae-limiter:stack"
"""The tag by which deployments are found; its value is the name of the deployment."""

VERSION_TAG: Final = "zae-limiter:version"
"""The version of the library that deployed it last."""

CODE_PREFIX: Final = "code/"
AUDIT_PREFIX: Final = "audit/"
FAILURE_PREFIX: Final = "aws/lambda/"
"""Where Lambda keeps the records it gave up on; it chooses that name itself."""

ROLE_NAME_LENGTH: Final = 64
POLICY_NAME_LENGTH: Final = 128
ROLES: Final = ("acquire", "full", "read", "lambda")
"""What the names of roles end in."""

ROLE_PRINCIPALS: Final = {
    "acquire": "AcquireRolePrincipals",
    "full": "FullRolePrincipals",
    "read": "ReadRolePrincipals",
}
"""The parameter of each role that names who may assume it."""

ONE_TRUST_LIST: Final = "RoleTrustedPrincipals"
"""The parameter of earlier templates, whose principals could assume every role."""

POLICIES: Final = (
    "acquire",
    "full",
    "read",
    "namespace-acquire",
    "namespace-full",
    "namespace-read",
)
"""What the names of policies end in."""


def template_text() -> str:
    """The template, as CloudFormation takes it."""
    return files("zae_limiter.infra").joinpath("cfn_template.yaml").read_text(encoding="utf-8")


def stack_tags(name: str) -> dict[str, str]:
    """The tags of a deployment of that name, made by this version of the library."""
    return {STACK_TAG: name, VERSION_TAG: __version__}


def code_key(package: bytes) -> str:
    """Under which key a package belongs into the bucket: the same for the same bytes."""
    return f"{CODE_PREFIX}aggregator-{hashlib.sha256(package).hexdigest()[:32]}.zip"


def role_name_parameters(name_format: str, stack: str) -> Mapping[str, str]:
    """The parameters that give roles names like ``team-{}``. Raises :class:`ValidationError` if they cannot be."""
    prefix, suffix = _halves("role_name_format", name_format, stack, ROLES, ROLE_NAME_LENGTH)
    return {"RoleNamePrefix": prefix, "RoleNameSuffix": suffix}


def policy_name_parameters(name_format: str, stack: str) -> Mapping[str, str]:
    """The parameters that give policies names like ``team-{}``. Raises :class:`ValidationError` likewise."""
    prefix, suffix = _halves("policy_name_format", name_format, stack, POLICIES, POLICY_NAME_LENGTH)
    return {"PolicyNamePrefix": prefix, "PolicyNameSuffix": suffix}


def _halves(field: str, name_format: str, stack: str, endings: tuple[str, ...], longest: int) -> tuple[str, str]:
    prefix, placeholder, suffix = name_format.partition("{}")
    if not placeholder or "{" in prefix + suffix or "}" in prefix + suffix:
        raise ValidationError(field, name_format, "must contain {} once, where the name of the stack and its part go")
    name = f"{prefix}{stack}-{max(endings, key=len)}{suffix}"
    if len(name) > longest:
        raise ValidationError(field, name_format, f"makes {name!r}, longer than the {longest} characters IAM allows")
    return prefix, suffix
