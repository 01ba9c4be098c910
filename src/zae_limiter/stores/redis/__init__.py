"""The Redis and Valkey store: every decision about a bucket is one script, which the server runs as one step.

A namespace is one hash slot, so that all legs of an acquire are taken at once, in one round trip, also in a cluster.
The scripts resolve the limits themselves: what one client changes holds for the next acquire of every other.
"""
