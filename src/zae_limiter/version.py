"""The one place that knows the version of this library."""

__version__ = "0.1.0.dev0"
