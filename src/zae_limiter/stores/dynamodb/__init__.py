"""The store for fleets: one DynamoDB table, one conditional write per acquire.

Read it in this order: ``keys`` and ``items`` (what the table holds), ``writes`` (the forms every change of a
bucket takes, and why they are exact), ``images`` (what a client remembers), ``plans/`` (the decisions), ``store``
(who answers the plans' requests).
"""
