"""The version of the distribution. Above 0.28.1, so that third-party checks for a minimum version pass."""

__version__ = "1.0.0"

__api_version__ = "0.28.1"
"""The version of Horovod whose API this is."""
