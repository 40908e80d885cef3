"""A few of the programs of ``make programs``, over shared memory, TCP and several hosts."""

from pathlib import Path

import pytest
from random_program import make_program
from rank_player import ranks_play
from rank_server import run_job
from run_programs import different, judge

SEEDS = [5, 13, 16, 18, 23]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program(seed: int, tmp_path: Path, rank_server) -> None:
    program = make_program(seed)
    ranks, environment = len(program.hosts), program.environment
    ended = run_job(tmp_path, rank_server, ranks, ranks_play, [seed], env=environment, hosts=program.hosts)
    assert not judge(ended), f"{program}\n{ended.output()}"
    results = [ended.result(rank) for rank in range(ranks)]
    assert not different(results)
    assert all(result["checked"] for result in results)
