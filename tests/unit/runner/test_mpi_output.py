"""The output of an MPI launcher, taken apart: each rank's bytes, however they were cut and mixed."""

import random
import re

import pytest

from horovod.runner.mpi.jsrun import NO_TAG
from horovod.runner.mpi.launchers import Kind, Launcher
from horovod.runner.mpi.tagged import Untangler

TAGS = {
    Kind.OPEN_MPI: (4, b"[1,%d]<stdout>:"),
    Kind.SPECTRUM: (10, b"[1,%d]<stderr>:"),
    Kind.MPICH: (4, b"[horovodrun,%d]:"),
    Kind.INTEL: (2021, b"[%d] "),
}


def untangled(tag: "re.Pattern[bytes]", pieces: list[bytes]) -> dict[int | None, bytes]:
    untangler = Untangler(tag)
    found: dict[int | None, bytes] = {}
    for rank, data in [*(piece for each in pieces for piece in untangler.feed(each)), *untangler.end()]:
        found[rank] = found.get(rank, b"") + data
    return found


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    places = sorted(chance.randrange(len(data) + 1) for _ in range(40))
    return [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)]


@pytest.mark.parametrize("kind", TAGS)
@pytest.mark.parametrize("seed", range(20))
def test_each_rank_has_its_bytes(kind: Kind, seed: int) -> None:
    chance = random.Random(seed)
    version, tag = TAGS[kind]
    alphabet = [b"a", b"[", b"[1", b"\xff", b"\r", b" ", b"]<", b"\0", b"word "]
    expected: dict[int | None, bytes] = {}
    wire = b""
    in_line: set[int] = set()
    for _ in range(200):
        rank = chance.randrange(3)
        text = b"".join(chance.choices(alphabet, k=chance.randrange(1, 9)))
        if ends := chance.random() < 0.5:
            text += b"\n"
        (in_line.discard if ends else in_line.add)(rank)
        expected[rank] = expected.get(rank, b"") + text
        wire += tag % rank + text
        if ends and chance.random() < 0.2:  # the launcher speaks between lines
            said = b"mpirun: [note] %d\n" % rank
            expected[None] = expected.get(None, b"") + said
            wire += said
    assert untangled(Launcher(kind, (version,), "").tag, cut(wire, chance)) == expected


def test_open_mpi_5_names_the_job_and_puts_a_blank_behind() -> None:
    tag = Launcher(Kind.OPEN_MPI, (5, 0), "").tag
    wire = b"[1,0]<stdout>:  two blanks\n[prterun-vm-17@1,12]<stderr>: x\nown words\n"
    for size in (1, 7, 1000):
        pieces = [wire[i : i + size] for i in range(0, len(wire), size)]
        assert untangled(tag, pieces) == {0: b" two blanks\n", 12: b"x\n", None: b"own words\n"}


def test_without_tags_all_is_the_launchers() -> None:
    wire = b"[1,0]<stdout>:a\n[half"
    assert untangled(NO_TAG, [wire[:9], wire[9:]]) == {None: wire}


def test_what_may_be_a_tag_is_not_held_back_for_long() -> None:
    untangler = Untangler(Launcher(Kind.OPEN_MPI, (4,), "").tag)
    assert untangler.feed(b"[1,3]<stdout>:10%[=") == [(3, b"10%")]
    assert untangler.feed(b"x" * 200) == [(3, b"[=" + b"x" * 200)]
    assert untangler.feed(b"[\n") == [(3, b"[\n")]
