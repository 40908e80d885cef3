"""Gradients, errors, joins and objects in MXNet."""

import check_mxnet  # noqa: F401  # skips
from shared_tests import (
    test_a_callers_own_mistake_concerns_nobody_else,
    test_a_disagreement_is_the_same_error_on_every_rank,
    test_a_joined_root_is_named,
    test_a_killed_rank_is_named,
    test_gradients,
    test_gradients_of_a_process_set,
    test_gradients_while_a_rank_has_joined,
    test_objects,
    test_random_programs_that_join,
    test_ranks_may_end_after_join,
)

__all__ = [
    "test_a_callers_own_mistake_concerns_nobody_else",
    "test_a_disagreement_is_the_same_error_on_every_rank",
    "test_a_joined_root_is_named",
    "test_a_killed_rank_is_named",
    "test_gradients",
    "test_gradients_of_a_process_set",
    "test_gradients_while_a_rank_has_joined",
    "test_objects",
    "test_random_programs_that_join",
    "test_ranks_may_end_after_join",
]
