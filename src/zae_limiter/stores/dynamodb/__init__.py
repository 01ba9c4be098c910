"""The store for fleets: one DynamoDB table, one conditional write per acquire.

Read it in this order: ``schema`` and ``items`` (what the table holds), ``write_forms`` (the forms every change of a
bucket takes, and why they are exact), ``bucket_cache`` (what a client remembers), ``config_resolver`` (which limits
hold), ``bucket_write`` (one write and its outcomes) and ``batching`` around it, ``operations/acquire`` (the
decisions of an acquire, from top to bottom), ``store`` (how the parts are put together), ``performer`` (which
answers their requests).
"""
