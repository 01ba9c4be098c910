"""The ``zae-limiter`` command."""
