"""The identity of a process, read from its environment."""

import os

import pytest

from horovod.bootstrap.identity import ALONE, HOROVODRUN, Identity, from_environment, placed, reason
from horovod.bootstrap.sources import INDEXED_JOB, SOURCES, TORCHRUN

_WHOLE = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "8",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "4",
    "HOROVOD_CROSS_RANK": "0",
    "HOROVOD_CROSS_SIZE": "2",
}


def test_without_a_launcher_the_process_is_alone() -> None:
    assert from_environment({"PATH": "/bin"}) == Identity(0, 1, 0, 1, 0, 1, "localhost", ALONE)


def test_the_launcher_decides() -> None:
    environment = {**_WHOLE, "HOROVOD_HOSTNAME": "node7"}
    assert from_environment(environment) == Identity(3, 8, 1, 4, 0, 2, "node7")


@pytest.mark.parametrize("name", _WHOLE)
def test_a_missing_variable_is_named(name: str) -> None:
    environment = {key: value for key, value in _WHOLE.items() if key != name}
    with pytest.raises(ValueError, match=rf"{name} missing"):
        from_environment(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOROVOD_RANK", "8"),
        ("HOROVOD_RANK", "-1"),
        ("HOROVOD_SIZE", "0"),
        ("HOROVOD_LOCAL_RANK", "4"),
        ("HOROVOD_LOCAL_SIZE", "9"),
        ("HOROVOD_CROSS_RANK", "2"),
        ("HOROVOD_CROSS_SIZE", "x"),
        ("HOROVOD_SIZE", ""),
    ],
)
def test_a_contradiction_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        from_environment({**_WHOLE, name: value})


# As each launcher sets them for the second of four processes on one host.
_LAUNCHED = {
    "Open MPI": {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    },
    "MPICH's mpirun": {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"},
    "srun": {
        "SLURM_PROCID": "1",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "4",
        "SLURM_STEP_ID": "0",
        "SLURM_NODEID": "0",
    },
    "jsrun": {
        "JSM_NAMESPACE_RANK": "1",
        "JSM_NAMESPACE_SIZE": "4",
        "JSM_NAMESPACE_LOCAL_RANK": "1",
        "JSM_NAMESPACE_LOCAL_SIZE": "4",
    },
    "MVAPICH2": {
        "MV2_COMM_WORLD_RANK": "1",
        "MV2_COMM_WORLD_SIZE": "4",
        "MV2_COMM_WORLD_LOCAL_RANK": "1",
        "MV2_COMM_WORLD_LOCAL_SIZE": "4",
    },
    "torchrun": {
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "TORCHELASTIC_RUN_ID": "none",
    },
}
_SOURCES = {source.launcher: source for source in SOURCES}


@pytest.mark.parametrize("launcher", _LAUNCHED)
def test_every_launcher_says_who_a_process_is(launcher: str) -> None:
    environment = _LAUNCHED[launcher]
    identity = from_environment(environment)
    assert identity == Identity(1, 4, 1, 4, 0, 1, "localhost", launcher)
    # horovodrun's variables come first, also where one of these has started it. It takes those of torchrun
    # away: where there are both, a rank has started torchrun.
    inner = launcher if launcher == TORCHRUN else HOROVODRUN
    assert from_environment({**environment, **_WHOLE}).launcher == inner
    alone = from_environment({**environment, _SOURCES[launcher].size: "1", _SOURCES[launcher].rank: "0"})
    assert (alone.size, alone.launcher) == (1, launcher)


@pytest.mark.parametrize("launcher", _LAUNCHED)
def test_what_a_launcher_says_in_part_or_wrongly_is_named(launcher: str) -> None:
    environment, source = _LAUNCHED[launcher], _SOURCES[launcher]
    for name in (source.local_rank, source.local_size):
        with pytest.raises(ValueError, match=rf"{name} is not set"):
            from_environment({key: value for key, value in environment.items() if key != name})
    for name in (source.rank, source.local_rank):
        for wrong in ("4", "-1", "x", "9" * 5000):
            with pytest.raises(ValueError, match=name):
                from_environment({**environment, name: wrong})
    for name in () if source.mark else (source.rank, source.size):
        with pytest.raises(ValueError, match=f"{name} is not"):
            from_environment({key: value for key, value in environment.items() if key != name})


@pytest.mark.parametrize("inner", ["torchrun", "Open MPI", "MPICH's mpirun"])
@pytest.mark.parametrize("tasks", ["1", "2"])
def test_a_launcher_within_a_step_of_slurm_comes_first(inner: str, tasks: str) -> None:
    step = {**_LAUNCHED["srun"], "SLURM_STEP_NUM_TASKS": tasks, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    identity = from_environment({**step, "SLURM_STEP_TASKS_PER_NODE": tasks, **_LAUNCHED[inner]})
    assert (identity.launcher, identity.rank, identity.size) == (inner, 1, 4)


def test_slurm_that_speaks_for_mpich_in_part_is_slurm() -> None:
    assert from_environment({**_LAUNCHED["srun"], "PMI_RANK": "1", "PMI_SIZE": "4"}).launcher == "srun"


def test_variables_of_torch_without_torchrun_are_whole_or_an_error() -> None:
    plain = {name: value for name, value in _LAUNCHED["torchrun"].items() if name != "TORCHELASTIC_RUN_ID"}
    assert from_environment(plain).size == 4
    with pytest.raises(ValueError, match="LOCAL_RANK, LOCAL_WORLD_SIZE are not set"):
        from_environment({"RANK": "1", "WORLD_SIZE": "4"})


@pytest.mark.parametrize("text", ["", "2(x3", "a"])
def test_what_is_no_list_of_tasks_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="SLURM_STEP_TASKS_PER_NODE"):
        from_environment({**_LAUNCHED["srun"], "SLURM_STEP_TASKS_PER_NODE": text})


@pytest.mark.parametrize("launcher", _LAUNCHED)
def test_ranks_on_several_hosts_know_the_name_of_theirs(launcher: str) -> None:
    own = os.uname().nodename
    two = "2(x2)" if launcher == "srun" else "2"
    environment = {**_LAUNCHED[launcher], _SOURCES[launcher].local_size: two}
    assert from_environment(environment) == Identity(1, 4, 1, 2, 0, 1, own, launcher)
    named = from_environment({**environment, "HOROVOD_HOSTNAME": "pod7"})
    assert named.hostname == "pod7"
    # Two nodes of the launcher may be on one machine.
    node = {"torchrun": {"GROUP_RANK": "3"}, "srun": {"SLURMD_NODENAME": "n3"}}.get(launcher, {})
    name = {"torchrun": f"{own} (node 3)", "srun": "n3"}.get(launcher, own)
    assert from_environment({**environment, **node}).hostname == name


def test_cross_ranks_count_the_hosts_with_that_local_rank() -> None:
    hosts = [0, 0, 1, 2, 2, 2]  # as they are when the ranks have met
    locals_ = [0, 1, 0, 0, 1, 2]
    found = []
    for rank, local in enumerate(locals_):
        identity = Identity(rank, 6, local, hosts.count(hosts[rank]), 0, 1, "n", "Open MPI")
        there = placed(identity, hosts)
        found.append((there.cross_rank, there.cross_size))
        assert placed(identity, []) == identity
    assert found == [(0, 3), (0, 2), (1, 3), (2, 3), (1, 2), (0, 1)]


def test_a_pod_of_an_indexed_job_needs_the_number_of_pods() -> None:
    pod = {"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3", "HOSTNAME": "train-2"}
    own = os.uname().nodename
    assert from_environment(pod) == Identity(2, 3, 0, 1, 0, 1, own, INDEXED_JOB)
    # As tutorials for torch.distributed have it.
    assert from_environment({**pod, "RANK": "2", "MASTER_ADDR": "train-0.train"}).launcher == INDEXED_JOB
    assert from_environment({**pod, "WORLD_SIZE": "1"}).size == 1
    with pytest.raises(ValueError, match=r"JOB_COMPLETION_INDEX is set and WORLD_SIZE is not.*WORLD_SIZE=1"):
        from_environment({"JOB_COMPLETION_INDEX": "2"})
    with pytest.raises(ValueError, match="JOB_COMPLETION_INDEX=3 does not go with WORLD_SIZE=3"):
        from_environment({**pod, "JOB_COMPLETION_INDEX": "3"})
    # A launcher within the pod knows better.
    assert from_environment({"JOB_COMPLETION_INDEX": "2", **_LAUNCHED["Open MPI"]}).size == 4


@pytest.mark.parametrize("launcher", ["Open MPI", "MPICH's mpirun", "srun", "jsrun"])
def test_what_contradicts_the_launcher_is_named(launcher: str) -> None:
    environment, source = _LAUNCHED[launcher], _SOURCES[launcher]
    with pytest.raises(ValueError, match=f"RANK=0 contradicts {source.rank}=1 of {launcher}.*unset RANK"):
        from_environment({**environment, "RANK": "0", "WORLD_SIZE": "4"})
    with pytest.raises(ValueError, match=f"WORLD_SIZE=1 contradicts {source.size}=4"):
        from_environment({**environment, "WORLD_SIZE": "1"})
    assert from_environment({**environment, "RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}).rank == 1


def test_a_rank_without_a_size_is_no_job_of_one() -> None:
    pmix = {"PMIX_RANK": "3", "PMIX_NAMESPACE": "job", "PMIX_SERVER_URI4": "job.0;tcp4://127.0.0.1:4000"}
    with pytest.raises(ValueError, match=r"PMIX_RANK is set.*no variable says of how many"):
        from_environment(pmix)
    assert from_environment({**pmix, **_LAUNCHED["Open MPI"]}).size == 4


def test_the_log_says_which_variables_decided_and_which_did_not() -> None:
    environment = {**_LAUNCHED["srun"], **_LAUNCHED["torchrun"]}
    text = reason(from_environment(environment), environment)
    assert text.startswith(
        "torchrun started this job: RANK=1, WORLD_SIZE=4, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4"
    )
    assert "those of srun are set, too" in text


@pytest.mark.parametrize(
    "environment",
    [
        {"WORLD_SIZE": "4"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a script in an allocation, not started by srun
    ],
)
def test_what_is_left_in_an_environment_is_no_launcher(environment) -> None:
    assert from_environment(environment).size == 1
