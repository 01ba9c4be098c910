"""Plain values: what callers give and get. No behaviour beyond their own validity."""
