"""``memory://``: one process, the fastest path, and the reference for how every store behaves."""
