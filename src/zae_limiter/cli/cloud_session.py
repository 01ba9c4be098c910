"""What commands on deployments share: the options that name a region, and a session with a stack manager for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from zae_limiter.cli.options import as_usage_error, json_option
from zae_limiter.cli.session import Dependencies, Session
from zae_limiter.naming import DEFAULT_NAMESPACE, check_stack_name

if TYPE_CHECKING:
    from zae_limiter.infra.stacks import StackManager

Command = TypeVar("Command", bound=Callable[..., Any])


class CloudSession(Session):
    """The session of a command on the deployments of a region."""

    def __init__(
        self,
        region: str | None,
        endpoint_url: str | None,
        profile: str | None,
        *,
        as_json: bool,
        dependencies: Dependencies | None = None,
    ) -> None:
        super().__init__(None, DEFAULT_NAMESPACE, as_json=as_json, dependencies=dependencies)
        self._where = region, endpoint_url, profile

    @cached_property
    def stacks(self) -> StackManager:
        """The deployments of the region."""
        from zae_limiter.infra.stacks import StackManager

        region, endpoint_url, profile = self._where
        return StackManager(region, endpoint_url, profile=profile)

    def close(self) -> None:
        """Close the connections to AWS, if there are any."""
        super().close()
        if "stacks" in vars(self):
            self.stacks.close()


def typed_or_of_url(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Where deployments are: what was typed, else what ``ZAEL_URL`` says, else what AWS's own variables say.

    So a deployment command and a limiter with the same environment are in the same place.
    """
    typed = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    if typed or not os.environ.get("ZAEL_URL", "").startswith("dynamodb:"):
        return value
    from zae_limiter.stores.open_store import place_in_environment

    place = place_in_environment()
    said: str | None = None if place is None else getattr(place, option.name or "")
    return said or value


def region_options(command: Command) -> Command:
    """``--region``, ``--endpoint-url`` and ``--profile``: where deployments are, and the identity to use."""
    command = click.option(
        "--profile",
        envvar="AWS_PROFILE",
        show_envvar=True,
        metavar="NAME",
        help="The profile of your AWS settings to use.",
    )(command)
    command = click.option(
        "--endpoint-url",
        envvar="AWS_ENDPOINT_URL",
        show_envvar=True,
        show_default="that of ZAEL_URL",
        callback=typed_or_of_url,
        metavar="URL",
        help="Use this endpoint instead of AWS: a local cloud.",
    )(command)
    return click.option(
        "--region",
        envvar="AWS_REGION",
        show_envvar=True,
        show_default="that of ZAEL_URL, or of your AWS settings",
        callback=typed_or_of_url,
        metavar="REGION",
        help="The region.",
    )(command)


def on_cloud(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every command on deployments, and a :class:`CloudSession` as first argument."""

    @json_option
    @region_options
    @click.pass_context
    @wraps(command)
    def with_session(
        context: click.Context,
        /,
        *args: Any,
        region: str | None,
        endpoint_url: str | None,
        profile: str | None,
        as_json: bool,
        **kwargs: Any,
    ) -> None:
        dependencies = context.find_root().obj
        session = CloudSession(region, endpoint_url, profile, as_json=as_json, dependencies=dependencies)
        context.call_on_close(session.close)
        command(session, *args, **kwargs)

    return with_session


def check_name(context: click.Context, option: click.Parameter, name: str | None) -> str | None:
    """A name that a deployment may have."""
    if name is None:
        return None
    with as_usage_error():
        return check_stack_name(name, "name")


def name_option(command: Command) -> Command:
    """``--name``: which deployment."""
    return click.option(
        "--name", required=True, callback=check_name, metavar="STACK", help="The name of the deployment."
    )(command)
