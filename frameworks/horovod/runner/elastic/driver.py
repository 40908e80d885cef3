"""A name of Horovod 0.28: how often it asked for the hosts."""

from .discovery import PERIOD_SECONDS

DISCOVER_HOSTS_FREQUENCY_SECS = PERIOD_SECONDS
