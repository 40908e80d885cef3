"""Data-parallel training for deep learning frameworks.

Import the adapter of your framework, for example ``import horovod.torch as hvd``; this package itself imports
none.
"""

from horovod.version import __version__

__all__ = ["__version__"]
