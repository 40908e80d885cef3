"""The identity of a process, read from its environment."""

import pytest

from horovod.bootstrap.identity import Identity, from_environment

_WHOLE = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "8",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "4",
    "HOROVOD_CROSS_RANK": "0",
    "HOROVOD_CROSS_SIZE": "2",
}


def test_without_a_launcher_the_process_is_alone() -> None:
    assert from_environment({"PATH": "/bin"}) == Identity(0, 1, 0, 1, 0, 1, "localhost")


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


@pytest.mark.parametrize(
    ("launcher", "environment"),
    [
        ("torchrun", {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}),
        ("mpirun", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}),
        ("mpirun", {"PMI_RANK": "1", "PMI_SIZE": "4"}),
        ("srun", {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}),
        ("jsrun", {"JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "4"}),
    ],
)
def test_several_processes_of_another_launcher_are_no_jobs_of_one(launcher, environment) -> None:
    with pytest.raises(ValueError, match=rf"^{launcher} started this process .*horovodrun -np 4 "):
        from_environment(environment)
    one = {name: "1" if value == "4" else "0" for name, value in environment.items()}
    assert from_environment(one).size == 1
    assert from_environment({**environment, **_WHOLE}).size == 8


@pytest.mark.parametrize(
    "environment",
    [
        {"WORLD_SIZE": "4"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a script in an allocation, not started by srun
        {"RANK": "0", "WORLD_SIZE": "many"},
        {"RANK": "0", "WORLD_SIZE": "9" * 5000},
    ],
)
def test_what_is_left_in_an_environment_is_no_launcher(environment) -> None:
    assert from_environment(environment).size == 1
