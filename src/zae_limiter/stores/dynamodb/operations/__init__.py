"""The verbs of the store, each a plan: what it asks of the table, and what it decides by the replies."""
