"""The demo: a small world of callers, shown live, with a proof at the end.

``world`` is who is limited and ``habits`` how they call; ``callers`` make the calls and note them in a
``tally``; ``workers`` spread them over tasks or processes; ``show`` is the whole evening, ``screen`` what is seen
meanwhile, ``proof`` and ``summary`` what remains.
"""
