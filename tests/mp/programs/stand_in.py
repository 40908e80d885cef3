"""Stands in for a launcher that is not here: sets for each rank the variables that it is known to set.

stand_in.py LAUNCHER RANKS command...: so many ranks on each of two hosts. The output and the worst status are
those of the ranks.
"""

import os
import subprocess
import sys

HOSTS = ("h36n03", "h36n04")


def _numbers(prefix: str, *numbers: int) -> dict[str, str]:
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    return {f"{prefix}_{name}": str(number) for name, number in zip(names, numbers, strict=True)}


def variables(launcher: str, rank: int, size: int, ranks: int) -> dict[str, str]:
    """Of one rank."""
    numbers = rank, size, rank % ranks, ranks
    if launcher == "jsrun":  # with the variables of Spectrum MPI, which it starts
        lsf = {"LSB_JOBID": "1234", "LSB_MCPU_HOSTS": "localhost 1 localhost 42 h36n04 42"}
        return {**_numbers("JSM_NAMESPACE", *numbers), **_numbers("OMPI_COMM_WORLD", *numbers), **lsf}
    if launcher == "Spectrum MPI":
        return {**_numbers("OMPI_COMM_WORLD", *numbers), "PMIX_NAMESPACE": "77", "PMIX_RANK": str(rank)}
    if launcher == "MVAPICH2":
        return _numbers("MV2_COMM_WORLD", *numbers)
    if launcher == "Intel MPI":
        local = {"MPI_LOCALRANKID": str(rank % ranks), "MPI_LOCALNRANKS": str(ranks)}
        return {"PMI_RANK": str(rank), "PMI_SIZE": str(size), "PMI_FD": "77", "I_MPI_ROOT": "/opt", **local}
    # An indexed Job: each pod is a host.
    return {"JOB_COMPLETION_INDEX": str(rank), "WORLD_SIZE": str(size), "HOROVOD_HOSTNAME": f"train-{rank}"}


def main() -> None:
    """Starts the ranks and waits for them."""
    launcher, ranks, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    size = len(HOSTS) * ranks
    processes = [
        subprocess.Popen(
            command,
            env={
                "HOROVOD_HOSTNAME": HOSTS[rank // ranks],
                **os.environ,
                **variables(launcher, rank, size, ranks),
            },
        )
        for rank in range(size)
    ]
    sys.exit(max(abs(process.wait()) for process in processes))


main()
