"""Hosts by a real sshd, for the tests of elastic jobs."""

from collections.abc import Iterator

import pytest
import sshd
from sshd import Hosts


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Ssh]:
    with sshd.serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def hosts(ssh: sshd.Ssh) -> Iterator[Hosts]:
    hosts = Hosts(ssh)
    yield hosts
    hosts.wait_until_gone(5.0)
