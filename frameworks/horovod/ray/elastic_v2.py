"""A name of Horovod 0.28."""

from .nodes import RayHostDiscovery

__all__ = ["RayHostDiscovery"]
