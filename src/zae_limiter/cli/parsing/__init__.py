"""What people type, read: limits, amounts, moments. Pure; every error shows the right form."""
