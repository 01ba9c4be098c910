"""What the embedded stores share: every domain verb, written once over plain tables.

A store brings the tables (``tables.py``) and a way to run a function on them as one transaction; the verbs
here are such functions. Memory and SQLite therefore behave alike by construction.
"""
