"""What every test has."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("zae_limiter.testing.contract")
