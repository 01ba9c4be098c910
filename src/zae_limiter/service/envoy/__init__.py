"""Envoy's rate limit service: the limiter for what an Envoy proxy lets through."""
