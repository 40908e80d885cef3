"""The key-value space of MPICH's mpirun and of "srun --mpi=pmi2", within reach by the descriptor PMI_FD.

A client of version 1 of the process management interface: a request is one line of text and so is its answer.
What one rank puts, all can get after a barrier that all have entered. MPI_Init speaks over the same
descriptor, before this or after it, so nothing here changes its mode, and only a process without MPI says
goodbye: mpirun ends the neighbours of one that goes without. After it the next program of a rank cannot ask.
"""

import atexit
import ctypes
import os
import re
import select
import stat
import time
from collections.abc import Mapping

from ..errors import BootstrapError, StartTimeoutError
from ..text import shown

_MOST_LINE = 1 << 16
_GOODBYE_SECONDS = 1.0
_NAME = "the key-value space (PMI) of the launcher"


class KeyValueSpace:
    """A carrier. ``tell`` and ``hear`` are collective: rank 0 calls the one and all others the other, once.
    Raises BootstrapError, also from the constructor, when the launcher does not answer as it should.
    """

    name = _NAME
    is_public = False

    def __init__(self, descriptor: int, rank: int, timeout: float) -> None:
        self._descriptor = descriptor
        self._rank = rank
        self._deadline = time.monotonic() + timeout
        self._heard = ""
        self._ask("init pmi_version=1 pmi_subversion=1", "response_to_init")
        self._space = self._ask("get_my_kvsname", "my_kvsname").get("kvsname", "")
        self._owner = os.getpid()
        atexit.register(self._say_goodbye)

    def tell(self, value: str) -> None:
        """Gives ``value``, without spaces, to all other ranks."""
        key = self._free_key()
        self._ask(f"put kvsname={self._space} key={key} value={value}", "put_result")
        self._enter_barrier()

    def hear(self, timeout: float) -> str:
        """What rank 0 tells; again at every further call."""
        if not self._heard:
            self._deadline = time.monotonic() + timeout
            key = self._free_key()
            self._enter_barrier()
            found = self._get(key)
            if found is None:
                raise BootstrapError(f"rank {self._rank}: {_NAME} does not know what rank 0 has put there")
            self._heard = found
        return self._heard

    def _free_key(self) -> str:
        """One that nobody has put: a rank's process may run several programs, one after another."""
        number = 0
        while self._get(f"horovod-{number}") is not None:
            number += 1
        self._enter_barrier()
        return f"horovod-{number}"

    def _get(self, key: str) -> str | None:
        answer = self._ask(f"get kvsname={self._space} key={key}", "get_result", may_fail=True)
        return answer.get("value") if answer.get("rc", "0") == "0" else None

    def _enter_barrier(self) -> None:
        self._ask("barrier_in", "barrier_out")

    def _ask(self, request: str, expected: str, may_fail: bool = False) -> dict[str, str]:
        try:
            os.write(self._descriptor, f"cmd={request}\n".encode())
            line = self._receive()
        except StartTimeoutError:
            raise
        except OSError as error:
            raise BootstrapError(f"rank {self._rank}: {_NAME} does not answer: {error}") from None
        answer = parse(line)
        if answer.get("cmd") != expected or (answer.get("rc", "0") != "0" and not may_fail):
            raise BootstrapError(f"rank {self._rank}: {_NAME} answers {shown(line)} to {request.split()[0]}")
        return answer

    def _receive(self) -> str:
        received = b""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while not received.endswith(b"\n") and len(received) < _MOST_LINE:
            left = self._deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise StartTimeoutError(
                    f"rank {self._rank} waited in vain for all ranks to meet at {self.name}. Look whether "
                    "they run and call hvd.init()"
                )
            data = os.read(self._descriptor, 4096)
            if not data:
                raise ConnectionResetError("the descriptor PMI_FD is closed at the other end")
            received += data
        return received.decode(errors="replace").strip()

    def _say_goodbye(self) -> None:
        if os.getpid() != self._owner or _mpi_has_begun():
            return
        self._deadline = time.monotonic() + _GOODBYE_SECONDS
        try:
            self._ask("finalize", "finalize_ack")
        except BootstrapError:
            pass  # mpirun has ended


def opened(environ: Mapping[str, str], rank: int, timeout: float) -> KeyValueSpace | None:
    """The space of the launcher of this process; None where it offers none or a wrapper has closed the way to
    it.
    """
    text = environ.get("PMI_FD", "")
    if not re.fullmatch("[0-9]{1,6}", text, re.ASCII):
        return None
    try:
        if not stat.S_ISSOCK(os.fstat(int(text)).st_mode):
            return None
        return KeyValueSpace(int(text), rank, timeout)
    except StartTimeoutError:
        raise
    except (OSError, BootstrapError):
        return None


def parse(line: str) -> dict[str, str]:
    """A line such as "cmd=get_result rc=0 value=x=y" by its keys."""
    pairs = (part.partition("=") for part in line.split())
    return {key: value for key, equals, value in pairs if equals}


def _mpi_has_begun() -> bool:
    """Whether this process has called MPI_Init, of whichever library: then that says goodbye."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            paths = {line.split(maxsplit=5)[5].strip() for line in file if "/libmpi" in line}
    except (OSError, IndexError):
        return True
    for path in paths:
        begun = ctypes.c_int(0)
        try:
            ctypes.CDLL(path).MPI_Initialized(ctypes.byref(begun))
        except (OSError, AttributeError):
            continue
        if begun.value:
            return True
    return False
