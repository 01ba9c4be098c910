"""The token of a dashboard that a command opens: made for one run, and given to the first page that asks for it.

The command puts a code behind the ``#`` of the address, which browsers send to no server and no log. The page
exchanges it for the token, once: an address that is found later, in a history or on a screen, opens nothing.
"""

from __future__ import annotations

import hmac
import secrets

from zae_limiter import ValidationError
from zae_limiter.service import schemas
from zae_limiter.service.operations import Call, Operation, json_reply
from zae_limiter.service.problems import Problem, Reply
from zae_limiter.service.routes import ALL, change
from zae_limiter.service.tokens import Role, TokenSet, new_token

CODE_BYTES = 24
EXCHANGE = schemas.document({"once": {"type": "string", "minLength": 1, "maxLength": 100}})


class Session:
    """One token, and the code that is exchanged for it."""

    def __init__(self, principal: str, *, read_only: bool, namespace: str | None = None) -> None:
        roles = [Role.READ] if read_only else [Role.READ, Role.WRITE]
        try:
            self._text, token = new_token(principal, roles, namespace=namespace)
        except ValidationError:  # the name of a user may be none of an entity
            self._text, token = new_token("dashboard", roles, namespace=namespace)
        self._tokens = TokenSet([token])
        self.code: str | None = secrets.token_urlsafe(CODE_BYTES)
        self.operation: Operation = change(
            "session",
            "POST /v1/session",
            ALL,
            "Exchange the code of a dashboard for its token, once",
            self.exchange,
            EXCHANGE,
            schemas.answer(token=schemas.TEXT),
        )

    def current(self) -> TokenSet:
        """The token, for the guard."""
        return self._tokens

    async def exchange(self, call: Call) -> Reply:
        """The token, for the first that brings the code."""
        code, given = self.code, call.body["once"]
        if code is None or not hmac.compare_digest(code.encode(), given.encode()):
            raise Problem(401, "this address was used before: run zae-limiter dashboard again")
        self.code = None
        return json_reply({"token": self._text})
