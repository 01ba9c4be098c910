"""The limiter in other frameworks. Each module is imported by its users, and imports what it is named after."""
