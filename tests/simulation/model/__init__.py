"""DynamoDB in memory: one call at a time, exact, fast, without a clock, a thread or a network.

``Model().call("UpdateItem", params)`` answers as DynamoDB would, in its JSON, or raises
:class:`zae_limiter.stores.dynamodb.requests.Refused`. Nothing else happens by itself: items expire when
:meth:`Model.expire` is called, capacity is counted but never runs out, no transaction meets another, and every read,
also of an index, sees everything that was written. What the model does not know it does not guess: it raises
:class:`NotModelled`.

Items are never changed in place. So replies, images in the log of changes and what :meth:`Model.snapshot` returns
share them without copying, and a caller that gets one may keep it, but must not change it.
"""

from __future__ import annotations

from simulation.model.model import Model
from simulation.model.refusals import NotModelled
from simulation.model.tables import Change, Charge

__all__ = ["Change", "Charge", "Model", "NotModelled"]
