"""Where buckets live. Every store speaks the same narrow language: ``protocol.py``."""
