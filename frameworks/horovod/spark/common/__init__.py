"""What the estimators share: stores, training data as Parquet, and how ranks read them."""

try:
    import fsspec  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the estimators of horovod.spark need pyarrow and fsspec: pip install 'horovod[spark]'"
    ) from error
