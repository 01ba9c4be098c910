"""The data facade: entities, limits, namespaces, reports."""
