"""What every test has."""

from __future__ import annotations

import pytest

from engines.fixtures import dynoxide, engine, ministack

__all__ = ["dynoxide", "engine", "ministack"]

pytest.register_assert_rewrite("zae_limiter.testing.contract")
