"""Plans say what to wait for; the drivers here do the waiting."""
