"""How answers look: pictures and tables for people, documents for programs."""
