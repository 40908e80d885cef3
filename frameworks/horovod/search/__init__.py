"""Searches for hyper-parameters: the trials of one study run at the same time, on parts of one job::

    import horovod.torch as hvd

    def objective(trial):  # on each rank of a team
        rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
        optimizer = hvd.DistributedOptimizer(make(rate), process_set=trial.process_set)
        for epoch in range(5):
            trial.report(train(optimizer), epoch)
            if trial.should_prune():
                raise hvd.TrialPruned
        return evaluate()

    hvd.init()
    result = hvd.search(objective, trials=20, ranks_per_trial=2, storage="study.journal")

Optuna is sampler, pruner and study, on rank 0 alone; the other ranks reach it by messages of the job. It is
imported when a search begins: ``pip install horovod[search]``.
"""

from horovod.search.result import Result
from horovod.search.run import search
from horovod.search.trial import Trial, TrialPruned

__all__ = ["Result", "search", "Trial", "TrialPruned"]
