"""Data loaders that read ahead in a thread. They need no framework."""

from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
