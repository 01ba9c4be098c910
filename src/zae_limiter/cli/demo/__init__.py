"""The demo: simulated callers of a small organisation, shown live, with a proof at the end.

``scenario`` has the entities and their limits, ``call_profiles`` how each key calls; ``callers`` make the calls and
count them in a ``tally``; ``workers`` spread them over tasks or processes; ``run`` is the whole demo, ``screen`` its
live picture, ``proof`` and ``summary`` its result.
"""
