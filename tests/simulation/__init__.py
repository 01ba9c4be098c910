"""Whole fleets in one process: a model of DynamoDB, and what is run over it."""
