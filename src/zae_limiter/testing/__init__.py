"""For tests of code that uses zae-limiter."""
