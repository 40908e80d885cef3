"""The checks of a step: gradients that are no numbers, and models that have drifted apart."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import horovod.torch as hvd
from horovod.common import remarks
from horovod.common.exceptions import NonfiniteGradientError, ParameterDivergenceError
from horovod.common.training.fingerprints import fingerprint
from horovod.torch import step_checks

NONFINITE = {"HOROVOD_CHECK_NONFINITE": "1"}
WIRES = ["shm", "tcp"]


def _model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))


def _optimizer(model: torch.nn.Module, **options) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)


def _train(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, spoil=lambda step: None, steps=5
) -> list[str]:
    """The errors, by step; ``spoil`` changes what goes into one."""
    errors = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3) * hvd.rank()).sum()
        poison = spoil(step)
        (loss if poison is None else loss * poison).backward()
        try:
            optimizer.step()
        except (NonfiniteGradientError, ParameterDivergenceError) as error:
            errors.append(f"{step}: {error}")
    return errors


def _flat(model: torch.nn.Module) -> list[float]:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()


def ranks_meet_nan_and_inf(options: dict) -> list:
    """Rank 2 in step 2, then the ranks 1 and 2 in step 4."""
    hvd.init()
    model = _model()
    optimizer = _optimizer(model, **{name: getattr(hvd, value) for name, value in options.items()})
    poisons = {(2, 2): float("nan"), (4, 1): float("inf"), (4, 2): float("nan")}
    errors = _train(model, optimizer, lambda step: poisons.get((step, hvd.rank())))
    return [errors, _flat(model)]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("options", [{}, {"op": "Adasum"}], ids=["average", "adasum"])
def test_a_gradient_that_is_no_number_is_an_error_everywhere(run_ranks, wire: str, options: dict) -> None:
    results = run_ranks(3, ranks_meet_nan_and_inf, [options], env={**NONFINITE, "HOROVOD_TRANSPORT": wire})
    errors, parameters = results[0]
    assert all(result == results[0] for result in results)
    first, second = errors
    assert first.startswith("2: In step 2 the gradient of '1.") and "on rank 2 has NaN" in first
    assert "also" not in first and "so have" not in first
    assert second.startswith("4: In step 4 the gradient of '1.") and "on rank 1 has Inf" in second
    assert "so have gradients on rank 2 ('1." in second
    assert all(abs(value) < 10 for value in parameters)  # of the steps that were made


def ranks_scale_gradients(options: dict) -> list:
    """GradScaler leaves out a step whose gradients are not finite: that is no error of a later one. With
    Adasum each rank leaves out its own.
    """
    hvd.init()
    model = _model()
    optimizer = _optimizer(model, **{name: getattr(hvd, value) for name, value in options.items()})
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step in range(4):
        optimizer.zero_grad()
        poison = float("inf") if step == 1 and hvd.rank() == 1 else 1.0
        scaler.scale(model(torch.ones(2, 3)).sum() * poison).backward()
        scaler.step(optimizer)
        scaler.update()
    return _flat(model)


@pytest.mark.parametrize("options", [{}, {"op": "Adasum"}], ids=["average", "adasum"])
def test_steps_that_a_grad_scaler_leaves_out_are_no_errors(run_ranks, options: dict) -> None:
    env = {**NONFINITE, "HOROVOD_CHECK_PARAMETERS_EVERY": "1", "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "5"}
    one, other = run_ranks(2, ranks_scale_gradients, [options], env=env)
    assert one == other and all(abs(value) < 10 for value in one)


def ranks_step_with_a_closure(optimizers: list[str], options: dict) -> list:
    """The last rank meets NaN in the second of three steps."""
    hvd.init()
    results = []
    for name in optimizers:
        model = _model()
        plain = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        chosen = {option: getattr(hvd, value) for option, value in options.items()}
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), **chosen)
        for step in range(1, 4):
            poison = float("nan") if step == 2 and hvd.rank() == 1 else 1.0

            def closure(poison: float = poison, model=model, optimizer=optimizer) -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(torch.ones(2, 3) * (1 + hvd.rank())).square().sum() * poison
                loss.backward()
                return loss

            try:
                optimizer.step(closure)
            except NonfiniteGradientError as error:
                results.append(f"{step}: {error}")
        results.append(all(torch.isfinite(p).all().item() for p in model.parameters()))
    return results


@pytest.mark.parametrize("options", [{}, {"op": "Adasum"}], ids=["average", "adasum"])
def test_gradients_that_a_closure_makes_are_looked_at_in_their_step(run_ranks, options: dict) -> None:
    env = {**NONFINITE, "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "5"}
    one, other = run_ranks(2, ranks_step_with_a_closure, [["SGD", "LBFGS"], options], env=env)
    assert one == other
    for error, finite in (one[:2], one[2:]):
        assert error.startswith("2: In step 2 the gradient of '1.") and "on rank 1 has NaN" in error
        assert finite


def ranks_drift_apart(size: int) -> list:
    """The last rank changes one parameter by one unit in the last place, from its fourth step on."""
    hvd.init()
    model = _model()
    optimizer = _optimizer(model)

    def drift(step: int) -> None:
        if step >= 4 and hvd.rank() == size - 1:  # an update may round the difference away
            weight = model[1].weight.data
            weight[1, 2] = torch.nextafter(weight[1, 2], torch.tensor(9.0))

    return _train(model, optimizer, drift, steps=6)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("every", "found"), [(1, [4, 5, 6]), (2, [5]), (3, [4]), (10, [])])
def test_a_model_that_drifted_by_one_bit_is_found(run_ranks, size: int, every: int, found: list[int]) -> None:
    env = {"HOROVOD_CHECK_PARAMETERS_EVERY": str(every)}
    results = run_ranks(size, ranks_drift_apart, [size], env=env)
    assert all(result == results[0] for result in results)
    assert [int(error.partition(":")[0]) for error in results[0]] == found
    for error in results[0][:1]:
        assert "the first tensor that differs is '1.weight' (1 of 4 do)" in error
        assert ("rank 3 differs from ranks 0, 1, 2;" in error) == (size == 4), error
        assert ("no majority tells which are right" in error) == (size == 2), error


def ranks_add_parameters(by: str) -> list[str]:
    hvd.init()
    model, head = _model(), torch.nn.Linear(2, 1)
    torch.nn.init.constant_(head.weight, 1.0 + hvd.rank() / 8)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    _train(model, optimizer, steps=1)
    adding = inner if by == "wrapped" else optimizer
    adding.add_param_group({"params": head.parameters()})
    return _train(torch.nn.Sequential(model, head), optimizer, steps=1)


@pytest.mark.parametrize("by", ["wrapped", "distributed"])
def test_added_parameters_are_compared_too(run_ranks, by: str) -> None:
    results = run_ranks(2, ranks_add_parameters, [by], env={"HOROVOD_CHECK_PARAMETERS_EVERY": "1"})
    assert results[0] == results[1]
    assert "Before step 2" in results[0][0] and "'noname.1.0' (1 of 6 do)" in results[0][0]


def ranks_forget_to_broadcast() -> list:
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(2, 2)
    optimizer = _optimizer(model)
    try:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    except ParameterDivergenceError as error:
        return [str(error)]
    return []


def test_a_forgotten_broadcast_is_found_in_the_first_step(run_ranks) -> None:
    results = run_ranks(3, ranks_forget_to_broadcast, env={"HOROVOD_CHECK_PARAMETERS_EVERY": "100"})
    assert results[0] == results[1] == results[2]
    assert "Before step 1" in results[0][0] and "(2 of 2 do)" in results[0][0]


def ranks_wrap_an_optimizer_twice() -> int:
    hvd.init()
    model = _model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
        _train(model, optimizer, steps=1)
    return len(inner._optimizer_step_pre_hooks)


def test_checks_do_not_pile_up(run_ranks) -> None:
    assert run_ranks(2, ranks_wrap_an_optimizer_twice, env=NONFINITE) == [1, 1]


def ranks_start_with_models(kind: str) -> list[str]:
    """What this rank has said of its model after four steps, by the end."""
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    members = hvd.add_process_set([1, 2]) if kind == "set" else hvd.global_process_set
    if not members.included():
        return []
    if kind == "parts":
        model[0].weight = PartOfParameter(model[0].weight.data)
        hvd.broadcast_parameters({name: p for name, p in model.named_parameters() if name != "0.weight"}, 0)
    if kind == "broadcast":
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    op = hvd.Adasum if kind == "adasum" else hvd.Average
    optimizer = _optimizer(model, op=op, process_set=members)
    assert _train(model, optimizer, steps=1) == []
    if kind == "late":
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert _train(model, optimizer, steps=3) == []
    return remarks._texts


class PartOfParameter(torch.nn.Parameter):
    """As those of sharded models."""


@pytest.mark.parametrize("kind", ["plain", "adasum", "set", "late", "broadcast", "parts", "off"])
def test_a_forgotten_broadcast_is_told_once(run_ranks, kind: str) -> None:
    """On the first of the ranks; not where the program broadcasts, or the parameters are parts of others."""
    environment = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", "HOROVOD_CHECK_FIRST_STEP": str(int(kind != "off"))}
    results = run_ranks(3, ranks_start_with_models, [kind], env=environment)
    told = [text for result in results for text in result]
    if kind in ("late", "broadcast", "parts", "off"):
        assert told == []
        return
    (text,) = told
    assert results[1 if kind == "set" else 0] == [text]
    assert "'0.bias' (4 of 4 do)" in text and "Add hvd.broadcast_parameters(model.state_dict(), " in text


def ranks_train_in_threads(op: str) -> None:
    """Two models at the same time; on each rank the other one comes to its update first."""
    hvd.init()
    models = [_model(), _model()[:1]]
    optimizers = [_optimizer(model, op=getattr(hvd, op)) for model in models]

    def train(number: int) -> None:
        model, optimizer = models[number], optimizers[number]
        for _ in range(3):
            model(torch.ones(2, 3) * hvd.rank()).sum().backward()
            optimizer.synchronize()
            if number == hvd.rank():
                time.sleep(0.3)
            with contextlib.nullcontext() if op == "Adasum" else optimizer.skip_synchronize():
                optimizer.step()
            optimizer.zero_grad()

    with ThreadPoolExecutor() as pool:
        list(pool.map(train, range(2)))


@pytest.mark.parametrize("op", ["Average", "Adasum"])
def test_two_threads_train_a_model_each(run_ranks, op: str) -> None:
    env = {**NONFINITE, "HOROVOD_CHECK_PARAMETERS_EVERY": "1", "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "5"}
    run_ranks(2, ranks_train_in_threads, [op], env=env)


def ranks_step_what_was_wrapped() -> None:
    """On one rank alone, as ``torch.distributed.checkpoint`` does to make the state of an optimizer."""
    hvd.init()
    model = _model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    if hvd.rank() == 0:
        inner.step()
    assert _train(model, optimizer, steps=3) == []


@pytest.mark.parametrize("every", [0, 2])
def test_steps_of_the_wrapped_optimizer_are_no_steps_of_the_ranks(run_ranks, every: int) -> None:
    env = {"HOROVOD_CHECK_PARAMETERS_EVERY": str(every), "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "5"}
    run_ranks(2, ranks_step_what_was_wrapped, env=env)


def ranks_are_elastic() -> list[list[str]]:
    """What is said in each of two generations."""
    said = []
    for _ in range(2):
        hvd.init()
        torch.manual_seed(hvd.rank())
        model = _model() if said else torch.nn.Linear(3, 2)
        with torch.no_grad():
            next(model.parameters()).add_(hvd.rank())
        optimizer = _optimizer(model)
        _train(model, optimizer, steps=3)
        said.append([*remarks._texts])
        remarks._texts.clear()
        hvd.shutdown()
    return said


def test_every_generation_is_compared(run_ranks) -> None:
    first, second = run_ranks(2, ranks_are_elastic)
    assert [len(texts) for texts in first] == [1, 1] and second == [[], []]


@pytest.mark.parametrize("first", [0, 1])
def test_torch_and_numpy_make_the_same_fingerprint(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    values = torch.randn(100_001, generator=torch.Generator().manual_seed(1)).half()[first:]
    (by_numpy,) = [fingerprint(content) for _, content in step_checks.contents_of([("a", values)])]
    monkeypatch.setattr(step_checks, "has_numpy", lambda: False)
    assert list(step_checks.contents_of([("a", values)])) == [("a", by_numpy)]
