"""A part of torch's own tests of torch.distributed; tests/torch_suite/run.py has all, beside gloo."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUITE = ROOT / "tests" / "torch_suite"
# Each starts two processes that import torch.
USUAL = [
    "test_DistributedDataParallelCPU",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_all_gather_coalesced_complex",
    "test_all_gather_object_subgroup",
    "test_all_reduce_full_group_product",
    "test_barrier_timeout_full_group",
    "test_batch_isend_irecv_gloo_tags",
    "test_gather_checks",
    "test_scatter_object_list",
    "test_send_recv_any_source",
    "test_sparse_all_reduce_sum",
]
RARE = [
    "test_all_gather_coalesced_with_empty",
    "test_all_reduce_coalesced_sum",
    "test_all_reduce_sum_async",
    "test_broadcast",
    "test_get_future",
    "test_reduce_sum_twice",
    "test_scatter_complex",
    "test_send_recv_with_tag",
    "test_static_graph_api_cpu",
]
NAMES = [*USUAL, *(RARE if os.environ.get("HVD_TEST_FULL") else ())]


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("expecttest") is None, reason="torch's tests need it: pip install expecttest"
)
@pytest.mark.timeout(300)
def test_a_part_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SUITE)
    monkeypatch.delitem(sys.modules, "run", raising=False)
    import run

    outcomes = run.run_suite("hvd", 2, NAMES, stands_in=True)
    assert outcomes == dict.fromkeys(NAMES, "passed")


def test_the_known_gaps_have_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SUITE)
    monkeypatch.delitem(sys.modules, "run", raising=False)
    import run

    assert all(run.known_gaps(4).values()) and len(run.known_gaps(4)) == 4
