"""Programs that are recorded do what the callables do: results, memory, random numbers and gradients, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn
from rushlight._backends.reference import run
from rushlight._base.errors import MissingFeatureError
from rushlight._capture import program_caller, record_program
from rushlight._capture.traced import TraceError
from rushlight._graph.printer import parse, to_source
from rushlight._graph.program import ProgramBuilder, Recorder
from rushlight._graph.verifier import verify
from rushlight._prims.draws import STREAM
from rushlight._transforms.functionalize import functionalize
from rushlight._types.dtype import FLOAT32
from rushlight.fx._lowering import lower


def flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (tuple, list)) else []


def same(found: Any, wanted: Any, exact: bool = True) -> None:
    """Whether tensors are equal; a sum that is fused with what stands around it may be rounded in another way."""
    for a, b in zip(flat(found), flat(wanted), strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-6)


def compare(function: Callable[..., Any], *args: torch.Tensor, exact: bool = True) -> Any:
    """Record and run; the results, the arguments afterwards and the generator are as after an eager call.  Gives the recorded program."""
    given, eager = [x.clone() for x in args], [x.clone() for x in args]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    recorded = record_program(function, *given)
    assert torch.equal(torch.get_rng_state(), state)
    same(given, list(args))  # nothing changes while a program is recorded
    verify(recorded.program.graph)
    verify(functionalize(recorded.program.graph).graph)
    assert to_source(parse(str(recorded))) == str(recorded)
    found = program_caller(recorded)(*given)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    wanted = function(*eager)
    same(found, wanted, exact)
    same(given, eager, exact)
    assert torch.equal(after, torch.get_rng_state())
    return recorded


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


def shown_again(x):
    return x, x[0], x.t(), {"rows": 4}


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
        torch.bernoulli(x.sigmoid()), torch.bernoulli(x, 0.3), torch.rand(20, dtype=torch.float64), torch.randint_like(x.long(), 3, 8),
    )  # fmt: skip


def fills(x):
    x.normal_()
    y = torch.empty(3, 20).uniform_(-1, 1)
    z = torch.empty(5).exponential_()
    x.t().bernoulli_(0.4)
    x[1:3].normal_(2.0, 0.5)
    return y, z, torch.empty(9, dtype=torch.int64).random_(3, 50), torch.empty(4, 6).bernoulli_(x.sigmoid())


def dropouts(x):
    return (
        F.dropout(x, 0.2), F.alpha_dropout(x, 0.3, True), F.dropout1d(x[None], 0.5), F.dropout2d(x.view(1, 2, 3, 4), 0.5), F.gumbel_softmax(x),
        F.feature_alpha_dropout(x, 0.5, True), torch.native_dropout(x, 0.4, True), F.dropout(x.t(), 0.5), F.dropout(x, 0.5, False), F.dropout(x, 0.0),
        F.dropout(x, 1.0), F.dropout(x, 0.5, True, inplace=True),
    )  # fmt: skip


@pytest.mark.parametrize(
    "function", [through_views, old_and_new, of_its_own, into_zeros, into_outputs, shown_again, network_parts, factories, fills, dropouts],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_one_argument(function) -> None:
    compare(function, X)


@pytest.mark.parametrize("function", [swap, by_index], ids=lambda f: f.__name__)
def test_two_arguments(function) -> None:
    compare(function, X, X.flip(0) * 3)


def test_results_share_memory_as_eager_ones_do() -> None:
    caller, x = program_caller(record_program(shown_again, X)), X.clone()
    whole, row, turned, rest = caller(x)
    assert whole is x and rest == {"rows": 4}
    x[0, 0] = 99.0
    assert row[0] == 99 and turned[0, 0] == 99
    z, row, turned = program_caller(record_program(of_its_own, X))(X)
    z[0, 1] = 55.0
    assert row[1] == 55 and turned[1, 0] == 55


def test_a_generator_of_its_own() -> None:
    generator = torch.Generator().manual_seed(3)

    def function(x):
        return x + torch.randn(4, 6, generator=generator) + torch.rand(4, 6)

    recorded = record_program(function, X)
    assert [i.source for i in recorded.program.inputs] == ["argument", "stream", "stream"]
    torch.manual_seed(0)
    found = [program_caller(recorded)(X) for _ in range(2)]
    generator.manual_seed(3)
    torch.manual_seed(0)
    same(found, [function(X) for _ in range(2)])


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


def gradients(call: Callable[..., Any], module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(1)
    y = call(x)
    y.square().sum().backward()
    found = [y, *[p.grad for p in module.parameters()], *module.buffers()]
    module.zero_grad()
    return [t.detach().clone() for t in found]


@pytest.mark.parametrize("how", ["callable", "method", "fx"])
def test_a_network_with_dropout_and_running_statistics(how: str) -> None:
    module, x = model(), torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    twin = copy.deepcopy(module)
    if how == "fx":
        traced = torch.fx.symbolic_trace(module)
        recorded = lower(traced, x)
    else:
        recorded = record_program(module if how == "callable" else module.forward, x)
    assert int(module[1].num_batches_tracked) == 0
    text = str(recorded)
    assert text.count("prim.draw_bernoulli(") == 2 and text.count("memory") >= 6
    caller = program_caller(recorded)
    for _ in range(2):
        found, wanted = gradients(caller, module, x), gradients(twin, twin, x)
        assert torch.equal(found[0], wanted[0])
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        for a, b in zip(module.buffers(), twin.buffers(), strict=True):
            assert torch.equal(a, b) and not a.requires_grad
    assert int(module[1].num_batches_tracked) == 2


def test_a_program_reads_parameters_when_it_runs() -> None:
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    caller = program_caller(record_program(module, x))
    with torch.no_grad():
        module.weight.mul_(2)
    same(caller(x).detach(), module(x).detach())


@pytest.mark.parametrize(
    "options", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {}], ids=str
)
def test_a_step_of_an_optimizer(options: dict[str, Any]) -> None:
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, **options)
    x = torch.randn(5, 4)
    for _ in range(2):
        optimizer.zero_grad()
        module(x).square().sum().backward()
        optimizer.step()
    twin = copy.deepcopy(module)
    other = torch.optim.SGD(twin.parameters(), lr=0.1, **options)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for a, b in zip(module.parameters(), twin.parameters(), strict=True):
        b.grad = a.grad.clone()
    step = program_caller(record_program(optimizer.step))
    for _ in range(3):
        step()
        other.step()
        same(list(module.parameters()), list(twin.parameters()))
    same(
        [s["momentum_buffer"] for s in optimizer.state.values() if s],
        [s["momentum_buffer"] for s in other.state.values() if s],
    )


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

    recorded = compare(step, X, torch.ones(4, 3), torch.full((3, 6), 0.1), torch.zeros(3), torch.zeros(()), exact=False)
    made = functionalize(recorded.program.graph)
    assert [i for i, _ in made.written] == [2, 3, 4]
    assert [n.prim.name for n in made.graph.nodes if n.prim.effect is not None] == ["draw_bernoulli"]


def test_the_reference_backend_runs_a_program() -> None:
    def function(x):
        x[1:3].add_(1)
        return F.dropout(x, 0.5)

    recorded, generator = record_program(function, X), torch.Generator().manual_seed(8)
    state = np.array(generator.get_state().tolist(), dtype=np.uint8)
    sources = [i.source for i in recorded.program.inputs]
    given = [np.array(X.tolist(), dtype=np.float32) if s == "argument" else state for s in sources]
    outputs = run(recorded.program.graph, given)
    torch.manual_seed(8)
    x = X.clone()
    wanted = function(x)
    assert outputs[0].tolist() == wanted.tolist()
    assert any(o.shape == (4, 6) and o.tolist() == x.tolist() for o in outputs[1:])


# ***** what is refused *****


CLOSED = torch.zeros(3)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: float(x[0, 0]), TraceError, "__float__ asks for the elements of a traced tensor"),
        (lambda x: x if x.sum() > 0 else -x, TraceError, "__bool__ asks for the elements"),
        (lambda x: x[x > 0], TraceError, "a mask chooses as many elements"),
        (lambda x: x.nonzero(), TraceError, "nonzero asks for the elements"),
        (lambda x: CLOSED.add_(1), RuntimeError, "changes a tensor that it was not given"),
        (lambda x: CLOSED.copy_(x[0, :3]), RuntimeError, "writes to a tensor that it was not given"),
        (lambda x: torch.multinomial(x.abs(), 2), MissingFeatureError, r"multinomial\(\) cannot be recorded yet"),
        (lambda x: F.rrelu(x, training=True), MissingFeatureError, r"rrelu\(\) cannot be recorded yet"),
        (lambda x: torch.empty(3).cauchy_(), MissingFeatureError, r"cauchy_\(\) cannot be recorded yet"),
        (lambda x: torch.add(x, 1, out=torch.empty(3)), MissingFeatureError, r"add\(\) would resize its out="),
        (lambda x: torch.add(x, 1, out=torch.empty(4, 6, dtype=torch.int64)), RuntimeError, "can't be cast"),
        (lambda x: x.data_ptr(), RuntimeError, "storage"),
        (lambda x: x.unfold(1, 2, 1), MissingFeatureError, "the view unfold cannot be recorded"),
        (lambda x: x.expand(2, 4, 6).add_(1), ValueError, "are repeated"),
        (lambda x: x.add_(torch.ones(2, 4, 6)), RuntimeError, "doesn't match the broadcast shape"),
        (lambda x: x.long().add_(0.5), RuntimeError, "can't be cast"),
        (lambda x: x.backward(), RuntimeError, "backward"),
        (lambda x: F.dropout(x, 1.5), ValueError, "between 0 and 1"),
        (lambda x: x.uniform_(2, 1), RuntimeError, "uniform_ expects"),
    ],
)
def test_programs_that_cannot_be_recorded(function, error, message) -> None:
    before = CLOSED.clone()
    with pytest.raises(error, match=message):
        record_program(function, X)
    assert torch.equal(CLOSED, before)
    assert torch.ones(2).add_(1).tolist() == [2, 2]  # nothing of the recording is left


def test_other_specs_and_shared_memory() -> None:
    caller = program_caller(record_program(swap, X, X + 1))
    with pytest.raises(RuntimeError, match="tensor 1 is .* the program was recorded for"):
        caller(X, X[:2])
    with pytest.raises(RuntimeError, match="was recorded for 2 tensors, got 1"):
        caller(X)
    x = torch.zeros(8, 6)
    with pytest.raises(RuntimeError, match="changes memory that two of its tensors share"):
        caller(x[:4], x[4:])
    assert not x.any()


def test_gradients_that_stop_in_the_middle() -> None:
    def middle(x):
        with torch.no_grad():
            scale = x.sum()
        return x.detach() * x * scale, x.detach(), x[0].detach() * 2

    found, wanted = X.clone().requires_grad_(), X.clone().requires_grad_()
    made, eager = program_caller(record_program(middle, found))(found), middle(wanted)
    assert [t.requires_grad for t in made] == [t.requires_grad for t in eager] == [True, False, False]
    same([t.detach() for t in made], [t.detach() for t in eager])
    made[0].sum().backward()
    eager[0].sum().backward()
    assert torch.equal(found.grad, wanted.grad)

    def overwritten(x):
        with torch.no_grad():
            x.mul_(2)
        return x * 3

    caller = program_caller(record_program(overwritten, X.clone().requires_grad_()))
    with pytest.raises(MissingFeatureError, match="after it was written without one"):
        caller(X.clone().requires_grad_())
    with torch.no_grad():
        same(caller(X.clone().requires_grad_()), X * 6)

    def quiet(x):
        with torch.no_grad():
            return x * 2

    x = X.clone().requires_grad_()
    found = program_caller(record_program(quiet, x))(x)
    assert not found.requires_grad
    leaf = program_caller(record_program(lambda x: x * 2, x))(x)
    leaf.sum().backward()
    assert torch.equal(x.grad, torch.full((4, 6), 2.0))


def test_a_traced_tensor_outlives_its_program() -> None:
    held = []
    record_program(held.append, X)
    with pytest.raises(TraceError, match="used after its program was recorded"):
        held[0] + 1


def test_an_error_in_an_fx_graph_names_the_node() -> None:
    traced = torch.fx.symbolic_trace(lambda x: torch.multinomial(x, 2))
    with pytest.raises(MissingFeatureError) as found:
        lower(traced, X)
    assert any("multinomial" in note for note in found.value.__notes__)


# ***** the builder *****


def test_a_program_builder_is_a_recorder() -> None:
    verbs = [name for name in vars(Recorder) if not name.startswith("_")]
    assert verbs == ["input", "constant", "call", "effect", "output"]
    assert all(callable(getattr(ProgramBuilder, verb)) for verb in verbs)


def test_cells_streams_and_groups() -> None:
    builder = ProgramBuilder()
    cell = builder.argument((3,), FLOAT32)
    noise = builder.draw("mine", "draw_uniform", shape=(3,), dtype=FLOAT32, low=0.0, high=1.0)
    total = builder.communicate(2, "all_reduce", noise, size=4, reduce="sum")
    builder.write(cell, total)
    part = (("slice", (("starts", (1,)), ("stops", (2,)), ("steps", (1,)))),)
    builder.output(cell, part)
    program = builder.program()
    verify(program.graph)
    assert [(i.source, i.content) for i in program.inputs] == [("argument", 0), ("stream", "mine"), ("group", 2)]
    assert [(r.source, r.number, r.views) for r in program.results] == [("input", 0, part)]
    assert program.graph.inputs[1].shape == STREAM[0]
    assert len(program.graph.outputs) == 3
