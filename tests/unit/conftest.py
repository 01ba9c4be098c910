"""How hypothesis runs here: without a deadline, because the machines that run this are busy with other things."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", deadline=None, max_examples=150)
settings.load_profile("unit")
