"""The dashboard: a page that shows how limits are doing, and changes them (``zae-limiter dashboard``, ``serve``).

The page (``static``) is ES modules and a stylesheet, without a build step; ``pages`` serves it under a strict policy.
What it shows comes from the routes of the service, and from those in ``routes``: the ``overview`` merges pulses and
reads the rows that are shown, and nothing else.
"""
