"""A name of Horovod 0.28. The secret of a job is never this one: each job draws its own."""

import secrets

from horovod.bootstrap.secret import SECRET_BYTES


def make_secret_key() -> str:
    """A random key, in hexadecimal."""
    return secrets.token_hex(SECRET_BYTES)
