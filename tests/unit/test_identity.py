"""The identity of a process, read from its environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.identity import ALONE, HOROVODRUN, Identity, from_environment
from horovod.bootstrap.sources import SOURCES, tasks_per_node

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
    # horovodrun's variables come first, also where one of these has started it.
    assert from_environment({**environment, **_WHOLE}).launcher == HOROVODRUN
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
    with pytest.raises(ValueError, match="on several hosts, 2 of them here"):
        from_environment({**environment, source.local_size: "2"})
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


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), min_size=1, max_size=8))
def test_tasks_of_slurm_nodes(groups: list[tuple[int, int]]) -> None:
    text = ",".join(f"{tasks}(x{nodes})" if nodes > 1 else f"{tasks}" for tasks, nodes in groups)
    assert tasks_per_node(text) == [tasks for tasks, nodes in groups for _ in range(nodes)]


@pytest.mark.parametrize("text", ["", "2(x3", "2,,1", "a", "2(x)", "1" * 9])
def test_what_is_no_list_of_tasks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of tasks"):
        tasks_per_node(text)
    with pytest.raises(ValueError, match="SLURM_STEP_TASKS_PER_NODE"):
        from_environment({**_LAUNCHED["srun"], "SLURM_STEP_TASKS_PER_NODE": text})


@pytest.mark.parametrize(
    "environment",
    [
        {"WORLD_SIZE": "4"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a script in an allocation, not started by srun
    ],
)
def test_what_is_left_in_an_environment_is_no_launcher(environment) -> None:
    assert from_environment(environment).size == 1
