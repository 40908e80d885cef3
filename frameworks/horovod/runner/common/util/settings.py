"""The settings of Horovod 0.28, for programs that hand them to an executor."""

from dataclasses import dataclass
from typing import Any

from .timeout import Timeout


@dataclass
class BaseSettings:
    """What executors look at is ``start_timeout``, ``nics``, and in elastic jobs the numbers of ranks; the
    rest is accepted.
    """

    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: Any = None
    start_timeout: Timeout | None = None
    output_filename: str | None = None
    run_func_mode: bool | None = None
    nics: Any = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False


@dataclass
class Settings(BaseSettings):
    """Those of a job whose hosts are known."""

    num_hosts: int | None = None
    hosts: str | None = None
