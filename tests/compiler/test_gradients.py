"""Autograd in compiled functions: hooks, checkpoints, functions of functions, beside the same calls without `compile`."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from rushlight.nn import functional as F
from rushlight.utils.checkpoint import checkpoint

counters = torch._dynamo.utils.counters


def _bits(x):
    if isinstance(x, torch.Tensor):
        return x.dtype, tuple(x.shape), x.detach().reshape(-1).view(torch.uint8).tolist() if x.numel() else []
    return [_bits(i) for i in x] if isinstance(x, (list, tuple)) else repr(x)


def _same(make, breaks=0, calls=3):
    """Calls with and without `compile` give the same bits; `make()` gives a function and a function of its arguments."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        function, arguments = make()
        torch.manual_seed(1)
        torch._dynamo.reset()
        counters.clear()
        run = torch.compile(function) if compiled else function
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append([_bits(run(*arguments(k))) for k in range(calls)])
    assert found[0] == found[1]
    assert breaks is None or len(counters["graph_break"]) == breaks, counters["graph_break"]
    assert not counters["failures"]


def _gradient_of(loss):
    """A function that gives a loss and the gradient of its argument."""

    def step(x):
        y = loss(x)
        y.backward()
        gradient, x.grad = x.grad.clone(), None
        return y.detach(), gradient

    return step


def _leaf(*shape):
    return torch.randn(*shape or (5,), requires_grad=True)


def test_gradients_dropped_before_a_break_are_dropped_at_every_call():
    def make():
        layer = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            loss = layer(x).pow(2).mean()
            torch._dynamo.graph_break()
            loss.backward()
            return loss.detach(), layer.weight.grad.clone()

        return step, lambda k: (torch.randn(4, 3),)

    _same(make, breaks=2)  # the second: backward into what another segment has computed


def test_hooks_on_tensors_of_the_trace():
    def loss(x):
        y = x.sin()
        y.register_hook(lambda g: g * 3)
        y.grad_fn.register_hook(lambda given, made: (given[0] * 2,))
        y.grad_fn.register_prehook(lambda made: (made[0] + 1,))
        return (y * y).sum()

    _same(lambda: (_gradient_of(loss), lambda k: (_leaf(),)))


def test_a_hook_that_outlives_the_trace_ends_it():
    seen = []

    def forward(x):
        y = x.sin()
        y.register_hook(lambda g: seen.append(1))
        return (y * y).sum()

    compiled = torch.compile(forward)
    for number in range(1, 4):
        compiled(_leaf()).backward()
        assert len(seen) == number
    with pytest.raises(Exception, match="register_hook|puts a hook"):
        torch._dynamo.reset()
        torch.compile(forward, fullgraph=True)(_leaf())


def test_hooks_that_a_tensor_brings_along():
    def make():
        seen = []
        factors = [2.0, 2.0, 5.0]

        def arguments(k):
            x = _leaf()
            x.register_hook(lambda g: g * factors[k])
            x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().detach()))
            return (x,)

        step = _gradient_of(lambda x: (x * x).sum())
        return (lambda x: (*step(x), len(seen))), arguments

    _same(make)


def test_steps_of_optimizers_in_hooks_behind_accumulation():
    def make():
        layer = nn.Linear(3, 2)
        optimizers = {p: torch.optim.SGD([p], 0.1, momentum=0.9) for p in layer.parameters()}

        def hook(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in layer.parameters():
            p.register_post_accumulate_grad_hook(hook)

        def step(x):
            loss = layer(x).pow(2).mean()
            loss.backward()
            return loss.detach(), layer.weight.detach().clone()

        return step, lambda k: (torch.randn(4, 3),)

    _same(make)


def test_hooks_of_modules():
    def make():
        layer = nn.Linear(3, 3)
        layer.register_full_backward_hook(
            lambda module, given, made: tuple(g * 2 if g is not None else None for g in given)
        )
        layer.register_full_backward_pre_hook(lambda module, made: tuple(g + 1 for g in made))
        return _gradient_of(lambda x: layer(x).sum()), lambda k: (_leaf(5, 3),)

    _same(make)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    def make():
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))
        step = _gradient_of(lambda x: checkpoint(model, x, use_reentrant=reentrant).sum())

        def whole(x):
            model.zero_grad()
            return *step(x), model[0].weight.grad.clone()

        return whole, lambda k: (_leaf(5, 3),)

    _same(make)


def test_a_compiled_module_in_a_checkpoint():
    def make():
        model = torch.compile(nn.Sequential(nn.Linear(3, 8), nn.Tanh()))
        return _gradient_of(lambda x: checkpoint(model, x, use_reentrant=False).sum()), lambda k: (_leaf(5, 3),)

    _same(make)


def test_functional_call_under_transforms():
    def make():
        layer = nn.Linear(3, 2)
        held = {name: p.detach() for name, p in layer.named_parameters()}

        def loss(tensors, x, y):
            return F.mse_loss(torch.func.functional_call(layer, tensors, (x,)), y)

        each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
        return (lambda x, y: tuple(each(held, x, y).values())), lambda k: (torch.randn(4, 3), torch.randn(4, 2))

    _same(make)


def test_a_transformed_function_outlives_the_segment_that_made_it():
    def make():
        def step(x, scale):
            gradient = torch.func.grad(lambda a: (a * scale).sin().sum())
            torch._dynamo.graph_break()
            return (gradient(x),)

        return step, lambda k: (torch.randn(4), torch.randn(4))

    _same(make, breaks=1)


def test_selective_checkpoints():
    def policy(context, operator, *args, **kwargs):
        kinds = torch.utils.checkpoint.CheckpointPolicy
        return kinds.MUST_SAVE if operator is torch.ops.aten.addmm.default else kinds.PREFER_RECOMPUTE

    contexts = functools.partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, policy)

    def make():
        model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        run = functools.partial(checkpoint, model, use_reentrant=False, context_fn=contexts)
        return _gradient_of(lambda x: run(x).sum()), lambda k: (_leaf(5, 3),)

    _same(make)


def _every_second_product():
    """Contexts whose policy counts and asks for operators that nobody has asked for before."""
    aten, counts = torch.ops.aten, {}
    kept = {aten.mm.default, aten.addmm.default, aten._scaled_dot_product_efficient_attention.default}

    def policy(context, operator, *args, **kwargs):
        if operator in kept:
            counts[context.is_recompute] = counts.get(context.is_recompute, 0) + 1
        save = operator in kept and counts[context.is_recompute] % 2
        kinds = torch.utils.checkpoint.CheckpointPolicy
        return kinds.MUST_SAVE if save else kinds.PREFER_RECOMPUTE

    return torch.utils.checkpoint.create_selective_checkpoint_contexts(policy)


@pytest.mark.parametrize("whole", [False, True])
def test_selective_checkpoints_of_wrapped_modules(whole):
    def make():
        model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 4), nn.Sigmoid())
        run = checkpoint_wrapper(model, context_fn=_every_second_product)
        step = _gradient_of(lambda x: run(x).sum())
        if whole:
            return step, lambda k: (_leaf(5, 3),)
        run.compile(fullgraph=True)
        return torch.compiler.disable(step), lambda k: (_leaf(5, 3),)

    _same(make, breaks=None)


@pytest.mark.parametrize("fused", [None, True])
def test_steps_with_a_gradient_scaler_are_one_graph(fused):
    def make():
        layer = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(layer.parameters(), 0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

        def step(x):
            optimizer.zero_grad()
            loss = layer(x).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            return (
                norm,
                layer.weight.detach().clone(),
                scaler._get_scale_async().clone(),
                scaler._growth_tracker.clone(),
            )

        return step, lambda k: (torch.randn(4, 3) * (float("inf") if k in (2, 5) else 1.0),)

    _same(make, calls=8)


def test_a_norm_that_is_not_finite_raises():
    layer = nn.Linear(3, 2)

    def step(x):
        layer.zero_grad()
        layer(x).pow(2).mean().backward()
        return nn.utils.clip_grad_norm_(layer.parameters(), 0.5, error_if_nonfinite=True)

    compiled = torch.compile(step, fullgraph=True)
    assert compiled(torch.ones(4, 3)).isfinite()
    with pytest.raises(RuntimeError, match="is non-finite"):
        compiled(torch.full((4, 3), float("inf")))
    assert compiled(torch.ones(4, 3)).isfinite()


@pytest.mark.parametrize("average", [None, torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)])
def test_averages_of_parameters_are_updated_in_the_step(average):
    def make():
        layer = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        averaged = torch.optim.swa_utils.AveragedModel(layer, multi_avg_fn=average)

        def step(x):
            optimizer.zero_grad()
            layer(x).pow(2).mean().backward()
            optimizer.step()
            averaged.update_parameters(layer)
            return averaged.module.weight.detach().clone(), averaged.n_averaged.clone()

        return step, lambda k: (torch.randn(4, 3),)

    _same(make, calls=4)


_SCHEDULES = torch.optim.lr_scheduler


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: _SCHEDULES.StepLR(o, 2), lambda o: _SCHEDULES.OneCycleLR(o, 0.1, 20), lambda o: _SCHEDULES.LambdaLR(o, lambda k: 0.9**k),
        lambda o: _SCHEDULES.SequentialLR(o, [_SCHEDULES.LinearLR(o, total_iters=2), _SCHEDULES.CosineAnnealingLR(o, 9)], [2]),
    ],
)  # fmt: skip
def test_schedules_in_the_step_are_no_reason_to_compile_again(schedule):
    def make():
        layer = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        scheduler = schedule(optimizer)

        def step(x):
            optimizer.zero_grad()
            layer(x).pow(2).mean().backward()
            optimizer.step()
            scheduler.step()
            return layer.weight.detach().clone()

        return step, lambda k: (torch.randn(4, 3),)

    _same(make, calls=8)
    assert sum(counters["recompiles"].values()) <= 2


def test_rates_that_are_read_behind_the_schedule_are_the_new_ones():
    def make():
        layer = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        scheduler = _SCHEDULES.ExponentialLR(optimizer, 0.5)

        def step(x):
            layer(x).pow(2).mean().backward()
            optimizer.step()
            scheduler.step()
            optimizer.step()
            return layer.weight.detach().clone(), optimizer.param_groups[0]["lr"], scheduler.get_last_lr()

        return step, lambda k: (torch.randn(4, 3),)

    _same(make, breaks=None)
    assert any("scheduler" in reason for reason in counters["graph_break"])


def test_a_line_search_is_not_compiled():
    def make():
        layer = nn.Linear(3, 2)
        optimizer = torch.optim.LBFGS(layer.parameters(), 0.1)

        def step(x):
            def closure():
                optimizer.zero_grad()
                loss = layer(x).pow(2).mean()
                loss.backward()
                return loss

            return optimizer.step(closure).detach(), layer.weight.detach().clone()

        return step, lambda k: (torch.randn(4, 3),)

    _same(make, breaks=1)
    assert sum(counters["recompiles"].values()) <= 1


def test_a_hook_runs_before_the_error_of_a_second_backward():
    def program(w, seen):
        v = (w * 1).exp()
        v.sum().backward()
        y = v * 2
        y.register_hook(lambda g: seen.append(g.sum()))
        (y * 3).sum().backward()

    found = []
    for function in (program, torch.compile(program)):
        w, seen = torch.ones(3, requires_grad=True), []
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            function(w, seen)
        found.append((w.grad.tolist(), [g.item() for g in seen]))
    assert found[0] == found[1]
    assert len(found[0][1]) == 1


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager"])
@pytest.mark.parametrize("transform", [torch.func.vjp, torch.func.linearize])
def test_functions_that_transforms_gave_outside(transform: Any, backend: str) -> None:
    """Their tensors are no inputs of a program: kernels would be given addresses that no memory has."""
    x = torch.tensor([0.5, 1.0])
    _, linear = transform(torch.sin, x)

    def function(t: Any) -> Any:
        found = linear(t * 2)
        return (found[0] if isinstance(found, tuple) else found) + t

    torch._dynamo.utils.counters.clear()
    assert torch.equal(torch.compile(function, backend=backend)(x), function(x))
    (reason,) = torch._dynamo.utils.counters["graph_break"]
    assert "holds tensors that a trace does not see" in reason
