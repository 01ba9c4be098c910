"""The limiter: what an application holds on to."""
