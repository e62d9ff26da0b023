"""Programs of many operators, recorded whole, do what the callables do: results, memory, random numbers, gradients, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.capture.recording.recorded import check

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn
from rushlight._capture.recording import Recording


def compare(function: Callable[..., Any], *args: torch.Tensor) -> Any:
    """Record the function for arguments like these and compare (see `check`); gives the program."""
    return check(lambda *xs: flat(function(*xs)), *[x.clone for x in args])


def flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (tuple, list)) else []


X = torch.linspace(-2, 2, 24).reshape(4, 6)


def through_views(x):
    y = x[1:3]
    y.mul_(2)
    x.t()[0].add_(1)
    x.view(-1)[5] = 7.0
    torch.diagonal(x).zero_()
    x.unsqueeze(0).select(2, 1).copy_(x[:, 0])
    return x.sum(), y


def old_and_new(x):
    old = x.clone()
    x.add_(1)
    return old, x


def swap(x, y):
    held = x.clone()
    x.copy_(y)
    y.copy_(held)
    return x


def of_its_own(x):
    z = x * 2
    row = z[0]
    z.add_(1)
    row.fill_(3)
    return z, row, z.t()


def into_zeros(x):
    out = torch.zeros(4, 6)
    out[1] = x[0]
    out[:, 2] += x[:, 1]
    return out, torch.zeros_like(x), x.new_ones(2), torch.arange(3) + 1


def by_index(x, y):
    x[0] = y[1]
    x[:, 1:3] = 5
    x[[0, 2]] = y[[1, 3]]
    x[x > 4] = 0.5
    return x


def network_parts(x):
    q = x.view(1, 2, 2, 6)
    return (
        F.scaled_dot_product_attention(q, q, q), F.layer_norm(x, (6,)), F.softmax(x, -1), x.max(1), x.topk(2, 1), torch.cat([x, x]), x.chunk(2)[1],
        torch.einsum("ij,kj->ik", x, x), torch.where(x > 0, x, torch.zeros(())), x.masked_fill(x < 0, 1.0), x.index_select(0, torch.tensor([1, 0])),
        F.cross_entropy(x, torch.tensor([0, 1, 2, 3])), x.reshape(6, 4), x.t().reshape(-1), x.t().contiguous(), x.double().to(torch.int64),
    )  # fmt: skip


def into_outputs(x):
    y, z = torch.empty(4, 6), torch.zeros(2, 6, dtype=torch.float64)
    torch.add(x, 1, out=y)
    torch.mul(x[:2], 2, out=z)
    F.normalize(x.clone(), dim=0, out=x)
    return y, z


def factories(x):
    return (
        x + torch.randn(4, 6) * 0.1, torch.rand_like(x), torch.randn_like(x.t()), torch.randint(0, 9, (3,)), torch.randint(5, (2, 2)), torch.randperm(7),
        torch.bernoulli(x.sigmoid()), torch.bernoulli(x.double().sigmoid()), torch.bernoulli(x, 0.3), torch.rand(20, dtype=torch.float64), torch.randint_like(x.long(), 3, 8),
    )  # fmt: skip


def fills(x):
    x.normal_()
    y = torch.empty(3, 20).uniform_(-1, 1)
    z = torch.empty(5).exponential_()
    x.t().bernoulli_(0.4)
    x[1:3].normal_(2.0, 0.5)
    return y, z, torch.empty(9, dtype=torch.int64).random_(3, 50), torch.empty(6, 4).t().bernoulli_(x.sigmoid())


def dropouts(x):
    return (
        F.dropout(x, 0.2), F.alpha_dropout(x, 0.3, True), F.dropout1d(x[None], 0.5), F.dropout2d(x.view(1, 2, 3, 4), 0.5), F.gumbel_softmax(x),
        F.feature_alpha_dropout(x, 0.5, True), torch.native_dropout(x, 0.4, True), F.dropout(x.t(), 0.5), F.dropout(x, 0.5, False), F.dropout(x, 0.0),
        F.dropout(x, 1.0), F.dropout(x, 0.5, True, inplace=True),
    )  # fmt: skip


@pytest.mark.parametrize(
    "function", [through_views, old_and_new, of_its_own, into_zeros, into_outputs, network_parts, factories, fills, dropouts],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_one_argument(function) -> None:
    compare(function, X)


@pytest.mark.parametrize("function", [swap, by_index], ids=lambda f: f.__name__)
def test_two_arguments(function) -> None:
    compare(function, X, X.flip(0) * 3)


def batched_dropout(x):
    return torch.func.vmap(lambda row: F.dropout(row, 0.5), randomness="different")(x)


def batched_noise(x):
    return torch.func.vmap(lambda row: row + torch.rand(6), randomness="same")(x)


def tangents(x):
    return torch.func.jvp(lambda t: t.sin() * 2, (x,), (x,))


@pytest.mark.parametrize("function", [batched_dropout, batched_noise, tangents], ids=lambda f: f.__name__)
def test_function_transforms_within_a_program(function) -> None:
    compare(function, X)


# ***** real models *****


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.5), nn.Linear(8, 3)
    )  # fmt: skip


def test_adam_written_out() -> None:
    @torch.no_grad()
    def adam(param, grad, mean, square, step):
        step.add_(1)
        mean.lerp_(grad, 0.1)
        square.mul_(0.999).addcmul_(grad, grad, value=0.001)
        size = 0.01 / (1 - 0.9**step)
        param.sub_(size * mean / ((square / (1 - 0.999**step)).sqrt() + 1e-8))

    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(3, 4, generator=generator) for _ in range(2)]
    compare(adam, *draws, torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(()))


def test_a_whole_training_step_is_one_graph() -> None:
    """Forward, gradients by hand, and the update of the weights."""

    @torch.no_grad()
    def step(x, target, w, b, running):
        h = F.dropout(x, 0.5) @ w.t() + b
        error = h - target
        running.mul_(0.9).add_(error.square().mean() * 0.1)
        w.sub_(error.t() @ x * 0.01)
        b.sub_(error.sum(0) * 0.01)
        return error.square().sum()

    compare(step, X, torch.ones(4, 3), torch.full((3, 6), 0.1), torch.zeros(3), torch.zeros(()))


def test_a_network_with_dropout_and_running_statistics() -> None:
    module, x = model(), torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    twin = copy.deepcopy(module)
    with Recording() as recording:
        made = module(recording.stand_in(x))
        program = recording.finish([made])
    assert int(module[1].num_batches_tracked) == 0  # nothing runs while a program is recorded
    for call in (lambda: program(recording.inputs)[0], lambda: twin(x)):
        for _ in range(2):
            torch.manual_seed(1)
            call().square().sum().backward()
    assert int(module[1].num_batches_tracked) == 2
    for a, b in zip((*module.parameters(), *module.buffers()), (*twin.parameters(), *twin.buffers()), strict=True):
        assert torch.equal(a, b) and a.requires_grad == b.requires_grad
        assert a.grad is b.grad is None or torch.equal(a.grad, b.grad)


def test_a_program_reads_parameters_when_it_runs() -> None:
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    with Recording() as recording:
        program = recording.finish([module(recording.stand_in(x))])
    with torch.no_grad():
        module.weight.mul_(2)
    assert torch.equal(program(recording.inputs)[0], module(x))


def test_an_fx_graph() -> None:
    """The graph of a module that `torch.fx` traced, run node by node while it is recorded."""
    traced = torch.fx.symbolic_trace(lambda x: (x * 2).relu_())
    compare(lambda x: torch.fx.Interpreter(traced).run(x), X)
