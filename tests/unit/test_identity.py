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
