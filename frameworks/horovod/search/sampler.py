"""A sampler whose values depend on the seed, the trial and the parameter alone."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from horovod.search.keeper import ORDINAL

if TYPE_CHECKING:
    import optuna


def seeded_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Draws at random. In whatever order trials that run at the same time ask, they get the same values as
    one after the other, which the samplers of Optuna do not promise.
    """
    import optuna

    class Seeded(optuna.samplers.BaseSampler):
        def infer_relative_search_space(self, study: optuna.Study, trial: Any) -> dict[str, Any]:
            return {}

        def sample_relative(self, study: optuna.Study, trial: Any, search_space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(
            self, study: optuna.Study, trial: Any, param_name: str, param_distribution: Any
        ) -> Any:
            number = trial.user_attrs.get(ORDINAL, trial.number)
            own = zlib.crc32(f"{seed} {number} {param_name}".encode())
            sampler = optuna.samplers.RandomSampler(seed=own)
            return sampler.sample_independent(study, trial, param_name, param_distribution)

    return Seeded()
