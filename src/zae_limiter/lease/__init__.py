"""A lease: tokens taken on entry, settled while they are held, given back when the work fails."""
