"""The state of elastic training between real ranks: whose state all get, and what becomes of the samples."""

import contextlib
import os
import signal
import time

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.elastic.run import run_fn
from horovod.elastic.state import State
from horovod.elastic.updates import HostUpdateResult


def made(distributed=True, sampler=None):
    """A state whose every part depends on the rank."""
    torch.manual_seed(hvd.rank())
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01 * (1 + hvd.rank()))
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    state = hvd.elastic.TorchState(net, optimizer, sampler=sampler, epoch=hvd.rank(), log=[hvd.rank()])
    return net, optimizer, state


def step(net, optimizer):
    optimizer.zero_grad()
    net(torch.randn(5, 3)).pow(2).sum().backward()
    optimizer.step()


def alone(net, optimizer):
    """A step that only this rank makes: the optimizer's of torch."""
    optimizer.zero_grad()
    net(torch.randn(5, 3)).pow(2).sum().backward()
    getattr(optimizer, "_forget_step", lambda: None)()
    optimizer._wrapped.step() if hasattr(optimizer, "_wrapped") else optimizer.step()


def everything(net, optimizer, state):
    optimizers = [[(k, v) for k, v in group.items() if k != "params"] for group in optimizer.param_groups]
    states = [sorted(optimizer.state[p].items()) for p in net.parameters() if p in optimizer.state]
    return repr([sorted(net.state_dict().items()), optimizers, states, state.epoch, state.log])


def ranks_newest_wins(commits):
    hvd.init()
    net, optimizer, state = made(distributed=False)
    for number in range(commits[hvd.rank()]):
        alone(net, optimizer)
        state.epoch, state.log = 10 * hvd.rank() + number, [*state.log, number]
        state.save()  # a commit, as far as this rank can make one alone
        state._age = (0, number + 1)
    alone(net, optimizer)  # rolled back
    state.log.append("lost")
    state.restore()
    mine = everything(net, optimizer, state)
    state.sync()
    now = everything(net, optimizer, state)
    step(net, optimizer)
    state.log.append("lost")
    state.restore()
    assert everything(net, optimizer, state) == now  # it was saved
    return [mine, now, state._age]


@pytest.mark.parametrize("commits", [[0, 0], [1, 3, 3], [0, 1, 2], [2, 2, 1]])
def test_the_newest_commit_wins(run_ranks, commits):
    results = run_ranks(len(commits), ranks_newest_wins, [commits])
    winner = commits.index(max(commits))
    assert [now for _, now, _ in results] == [results[winner][0]] * len(commits)
    assert [age for _, _, age in results] == [[1, max(commits)]] * len(commits)
    assert len({mine for mine, _, _ in results}) == len(commits)


def ranks_newcomer():
    """Rank 0 has just come; it has even committed on its own."""
    hvd.init()
    net, optimizer, state = made(distributed=False)
    if hvd.rank() == 0:
        state._age = (0, 7)
    else:
        state._age = (1, 0)
    mine = everything(net, optimizer, state)
    state.sync()
    return [mine, everything(net, optimizer, state), state._age]


def test_a_newcomer_never_wins(run_ranks):
    results = run_ranks(3, ranks_newcomer)
    assert [now for _, now, _ in results] == [results[1][0]] * 3
    assert [age for *_, age in results] == [[2, 0]] * 3


class Alone(State):
    """Trains on one rank, without the others."""

    def __init__(self):
        super().__init__(None, hvd.rank)

    def sync(self):
        pass


def stop():
    raise InterruptedError("the ranks would start again")


def ranks_other_states():
    """Rank 0 has come later: it begins with the first state of the program, the others are at the second."""
    hvd.init()
    if hvd.rank():
        run_fn(lambda state: None)(Alone())
    state = made()[-1]
    try:
        return run_fn(lambda state: "it trained", reset=stop)(state)
    except (ValueError, InterruptedError) as error:
        hvd.shutdown()  # as at its end
        return str(error)


def test_a_newcomer_does_not_train_another_state_than_the_others(run_ranks):
    newcomer, *others = run_ranks(3, ranks_other_states, env={"HOROVOD_ELASTIC": "1"})
    assert "This rank trains state 1 of its program, and rank 1 state 2" in newcomer
    assert others == ["the ranks would start again"] * 2


def fail(state):
    raise OSError("a bad read")


def ranks_that_try_again(failed):
    """Some have failed once, and try again with a new state."""
    hvd.init()
    if hvd.rank() in failed:
        with contextlib.suppress(OSError):
            run_fn(fail)(Alone())
    state = made()[-1]
    state._age = (1, 2) if hvd.rank() != 1 else (0, 0)
    return run_fn(lambda state: list(state._age), reset=stop)(state)


@pytest.mark.parametrize("failed", [[1], [0, 2]])
def test_a_training_that_fails_may_be_tried_again(run_ranks, failed):
    assert run_ranks(3, ranks_that_try_again, [failed], env={"HOROVOD_ELASTIC": "1"}) == [[2, 2]] * 3


def ranks_one_ahead():
    """Rank 1 has trained its state to the end, and begins with the next one, while the others go on."""
    hvd.init()
    if hvd.rank() == 1:
        run_fn(lambda state: None)(Alone())
    state = made()[-1]
    state._age = (1, 2) if hvd.rank() != 1 else (0, 0)
    try:
        return run_fn(lambda state: "it trained", reset=stop)(state)
    except (ValueError, InterruptedError) as error:
        hvd.shutdown()
        return str(error)


def test_who_has_what_is_trained_goes_on(run_ranks):
    first, ahead, last = run_ranks(3, ranks_one_ahead, env={"HOROVOD_ELASTIC": "1"})
    assert "This rank trains state 2 of its program, and rank 0 state 1" in ahead
    assert [first, last] == ["the ranks would start again"] * 2


def ranks_other_parts():
    """Rank 1 has come later, and has not made the sampler yet."""
    hvd.init()
    state = made()[-1]
    if hvd.rank() == 0:
        state._age = (1, 2)
        state.sampler = hvd.elastic.ElasticSampler(range(50))
    try:
        return run_fn(lambda state: "it trained", reset=stop)(state)
    except (ValueError, InterruptedError) as error:
        hvd.shutdown()
        return str(error)


@pytest.mark.timeout(30)
def test_a_newcomer_that_lacks_a_part_of_the_state_is_told_which(run_ranks):
    first, newcomer = run_ranks(2, ranks_other_parts, env={"HOROVOD_ELASTIC": "1"})
    assert "model, optimizer, and that of rank 0 plain values, model, optimizer, sampler" in newcomer
    assert first == "the ranks would start again"


def ranks_updates():
    hvd.init()
    *_, state = made()
    state.sync()
    raised = []
    for number in range(6):
        if number == 1 and hvd.rank() == 1:
            state.on_hosts_updated(1.0, HostUpdateResult.removed)
        if number == 2:  # the others hear of it too late
            state.on_hosts_updated(1.0, HostUpdateResult.removed)
        if number == 3:
            state.on_hosts_updated(2.0 + hvd.rank(), [1, 2, 1][hvd.rank()])
        if number == 5 and hvd.rank() == 0:
            state.on_hosts_updated(9.0, HostUpdateResult.no_update)
        try:
            state.commit()
            raised.append(None)
        except HostsUpdatedInterrupt as interrupt:
            raised.append(interrupt.skip_sync)
    return raised


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_hear_of_an_update_in_the_same_call(run_ranks, ranks):
    assert run_ranks(ranks, ranks_updates) == [[None, True, None, False, None, None]] * ranks


def ranks_sampler(uneven):
    """Three ranks of which the last is lost: the others go on without it, in a job of two."""
    hvd.init()
    sampler = hvd.elastic.ElasticSampler(range(50), uneven=uneven)
    *_, state = made(sampler=sampler)
    state.sync()
    loader = torch.utils.data.DataLoader(range(50), batch_size=4, sampler=sampler)
    committed, batches = [], iter(loader)
    for number in range(2):
        committed += next(batches).tolist()
        sampler.record_batch(number, 4)
        state.commit()
    next(batches)  # processed, and lost with the failure
    sampler.record_batch(2, 4)
    rank = hvd.rank()
    state.restore()
    hvd.shutdown()
    if rank == 2:
        return committed
    os.environ.update(HOROVOD_RANK="0", HOROVOD_SIZE="1", HOROVOD_LOCAL_RANK="0", HOROVOD_LOCAL_SIZE="1")
    hvd.init()
    state.on_reset()
    state.sync()
    rest = [index for batch in loader for index in batch.tolist()]
    assert sampler.num_replicas == 1
    return [committed, rest]


def test_samples_of_a_lost_rank_are_not_processed_again(run_ranks):
    first, second, third = run_ranks(3, ranks_sampler, ["keep"])
    (own0, rest0), (own1, rest1) = first, second
    committed = own0 + own1 + third
    assert len(committed) == len(set(committed)) == 24
    assert sorted(committed + rest0) == sorted(committed + rest1) == list(range(50))


def ranks_joined():
    """Rank 0 has one sample more than the other, which waits in join when hosts are removed."""
    hvd.init()
    sampler = hvd.elastic.ElasticSampler(range(5), uneven="keep")
    *_, state = made(sampler=sampler)
    state.sync()
    for number, _ in enumerate(sampler):
        hvd.allreduce(torch.ones(1), name="step")
        sampler.record_batch(number, 1)
    if hvd.rank() == 0:
        state.on_hosts_updated(1.0, HostUpdateResult.removed)
        with pytest.raises(HostsUpdatedInterrupt) as caught:
            state.check_host_updates()
        assert not caught.value.skip_sync
        hvd.shutdown()
    else:
        with pytest.raises(hvd.HorovodInternalError):
            hvd.join()
        state.restore()
    return sampler.processed_num


def test_who_has_joined_and_who_hears_of_hosts_meanwhile_go_back_to_one_commit(run_ranks):
    assert run_ranks(2, ranks_joined, env={"HOROVOD_ELASTIC": "1"}) == [0, 0]


def ranks_unequal():
    hvd.init()
    sampler = hvd.elastic.ElasticSampler(range(20), shuffle=False)
    *_, state = made(sampler=sampler)
    state.sync()
    own = list(sampler)
    done = own[: 2 + 3 * hvd.rank()]
    sampler.record_batch(0, len(done))
    state.save()
    state.restore()
    state.on_reset()
    state.sync()
    return [done, sorted(sampler.processed_indices), sampler.remaining_indices, list(sampler)]


def test_what_any_rank_has_processed_is_processed(run_ranks):
    results = run_ranks(2, ranks_unequal)
    done = sorted(results[0][0] + results[1][0])
    assert len(done) == 7
    assert [processed for _, processed, _, _ in results] == [done] * 2
    rest = [index for index in range(20) if index not in done]
    assert [remaining for _, _, remaining, _ in results] == [rest] * 2
    assert set(results[0][3] + results[1][3]) == set(rest)


def ranks_failed_step():
    """A step of which some gradients are in flight when the job fails."""
    hvd.init()
    net, optimizer, state = made()
    state.sync()
    step(net, optimizer)
    state.commit()
    before = everything(net, optimizer, state)
    optimizer.zero_grad()
    if hvd.rank() == 1:  # the other waits for gradients that do not come
        time.sleep(0.5)  # until it has committed, too
        os.kill(os.getpid(), signal.SIGKILL)
    net(torch.randn(5, 3)).pow(2).sum().backward()
    try:
        optimizer.step()
        raise AssertionError("it stepped")
    except hvd.HorovodInternalError:
        state.restore()
    assert everything(net, optimizer, state) == before
    assert all(p.grad is None for p in net.parameters())
    hvd.shutdown()
    os.environ.update(HOROVOD_RANK="0", HOROVOD_SIZE="1", HOROVOD_LOCAL_RANK="0", HOROVOD_LOCAL_SIZE="1")
    hvd.init()
    state.on_reset()
    state.sync()
    assert everything(net, optimizer, state) == before
    step(net, optimizer)
    state.commit()
    return state._age


def test_a_step_that_fails_leaves_nothing_behind(run_ranks):
    env = {"HOROVOD_ELASTIC": "1"}
    assert run_ranks(2, ranks_failed_step, env=env, dies=[1])[0] == [2, 2]
