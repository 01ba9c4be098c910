"""What a process tells of itself every few seconds: who is refused, who is near a limit, who is in debt. Pure."""
