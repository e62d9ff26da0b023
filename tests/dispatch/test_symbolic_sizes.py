"""Graphs of aten operators with symbolic sizes, and `ShapeEnv`: beside what PyTorch 2.13 gives for the same programs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.dispatch.programs import PROGRAMS, function_of, inputs, sized_lines

import rushlight as torch
from rushlight._functorch.aot_autograd import aot_export_module
from rushlight._subclasses.fake_tensor import FakeTensorMode
from rushlight.fx.experimental import symbolic_shapes
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
    ValueRange,
    free_symbols,
    guard_int,
    has_symbolic_sizes_strides,
    hint_int,
    is_concrete_int,
)

STORED = json.loads(gzip.decompress((Path(__file__).parent / "traces.json.gz").read_bytes()))["symbolic"]
DIFFERENT = {
    "reshape a transpose": "PyTorch divides the number of elements by 1",
    "einsum": "PyTorch takes a summed size from the other operand",
    "batch norm": "PyTorch calls _native_batch_norm_legit",
    "interpolate": "PyTorch decomposes it into index arithmetic",
    "transposed convolution": "the size of the kernel is a number",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_are_those_of_pytorch(name: str) -> None:
    """And they compute what the program does."""
    program, shapes = PROGRAMS[name]
    given = [t.detach() for t in inputs(torch, shapes)]
    function = function_of(torch, program, len(shapes))
    graph = make_fx(function, tracing_mode="symbolic")(*given)
    assert (sized_lines(graph.graph) == STORED[name]) is (name not in DIFFERENT)
    assert torch.equal(graph(*given), function(*given))


OTHER_SIZES: list[tuple[Callable[..., Any], list[list[tuple[int, ...]]]]] = [
    (lambda x: x.view(x.shape[0] * x.shape[1]) * x.numel(), [[(4, 6)], [(2, 9)]]),
    (lambda x: x.new_zeros((x.shape[0] + 1) * 2, -x.size(1) + 20), [[(4, 6)], [(7, 3)]]),
    (lambda x: (x[:, : x.shape[1] // 2], x.shape[0] % 3, 7 // x.shape[0]), [[(4, 6)], [(5, 9)]]),
    (lambda x: torch.arange(x.shape[0]) / 2 + x.shape[0] / 4, [[(4, 6)], [(7, 6)]]),
    (lambda x, y: torch.cat([x, y]).softmax(0) @ x.t(), [[(4, 6), (5, 6)], [(7, 3), (2, 3)]]),
    (lambda x: x.expand(3, *x.shape).flatten(0, 1).t().reshape(x.shape[1], -1), [[(4, 6)], [(7, 3)]]),
    (lambda x: torch.nn.functional.interpolate(x, scale_factor=2), [[(2, 3, 5, 7)], [(3, 2, 4, 6)]]),
    (lambda x: torch.zeros(torch.sym_max(x.shape[0], 5), torch.sym_min(x.shape[1], 5)), [[(4, 6)], [(9, 3)]]),
    (lambda x, w: torch.nn.functional.conv2d(x, w, padding=1).relu().mean((2, 3)), [[(4, 3, 8, 8), (5, 3, 3, 3)], [(2, 3, 9, 9), (5, 3, 3, 3)]]),
    (lambda x: torch.slice_scatter(x, x[1:-1] * 2, 0, 1, -1), [[(5, 6)], [(9, 3)]]),
    (lambda x: torch.select_scatter(x, x[0] * 2, 0, -1), [[(5, 6)], [(9, 3)]]),
    (lambda x: torch.cat(x.chunk(3)[::-1]) + x.tensor_split(2, 1)[0].sum(), [[(9, 6)], [(12, 8)]]),
    (lambda x, w: torch.autograd.grad((x @ w).sin().sum(), x)[0], [[(4, 6), (6, 3)], [(7, 2), (2, 5)]]),
    (lambda x: x.transpose(0, 1)[1:].contiguous().stride(0) + x.storage_offset() + x, [[(4, 6)], [(7, 3)]]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(OTHER_SIZES)))
def test_one_graph_serves_other_sizes(number: int) -> None:
    """Whatever was learnt eagerly before: native code does not read symbols."""
    function, sizes = OTHER_SIZES[number]

    def tensors(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
        return [torch.randn(shape, requires_grad=True) for shape in shapes]

    for _ in range(3):
        function(*tensors(sizes[0])), function(*tensors(sizes[1]))
    first, second = tensors(sizes[0]), tensors(sizes[1])
    graph = make_fx(function, tracing_mode="symbolic")(*first)
    symbolic = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    assert all(has_symbolic_sizes_strides(fake) for fake in symbolic)
    assert graph.shape_env.evaluate_guards_for_args(symbolic, second)
    for given in (first, second):
        wanted, got = function(*given), graph(*given)
        pairs = zip(wanted, got, strict=True) if isinstance(wanted, tuple) else [(wanted, got)]
        assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def test_the_text_of_a_graph() -> None:
    """PyTorch's text, line by line."""
    graph = make_fx(lambda x: x.new_zeros((x.shape[0] + 1) * 2, x.numel()), tracing_mode="symbolic")(torch.ones(3, 4))
    assert graph.code.strip().split("\n") == [
        "def forward(self, x_1):",
        "    sym_size_int = torch.ops.aten.sym_size.int(x_1, 0)",
        "    add = sym_size_int + 1;  sym_size_int = None",
        "    mul = add * 2;  add = None",
        "    sym_numel_default = torch.ops.aten.sym_numel.default(x_1)",
        "    new_zeros = torch.ops.aten.new_zeros.default(x_1, [mul, sym_numel_default]);  x_1 = mul = sym_numel_default = None",
        "    return new_zeros",
    ]
    assert [str(n.meta["val"]) for n in list(graph.graph.nodes)[1:5]] == ["s75", "s75 + 1", "2*s75 + 2", "s75*s96"]


GUARDS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "": (lambda x: x.numel(), (3, 4)),
    " - s75 <= 4": (lambda x: x.shape[0] > 4, (3, 4)),
    " - s75 > 2": (lambda x: x.shape[0] > 2, (3, 4)),
    " - Ne(s75*s96, 7)": (lambda x: x.shape[0] * x.shape[1] != 7, (3, 4)),
    " - Eq(Mod(s75, 2), 0)": (lambda x: x.shape[0] % 2 == 0, (4, 3)),
    " - Eq(s75, 4)": (lambda x: int(x.shape[0]), (4, 3)),
    " - Eq(((s96 + 3)//4), 2)": (lambda x: (x.shape[1] + 3) // 4 == 2, (3, 6)),
}


@pytest.mark.parametrize("text", GUARDS)
def test_what_is_asked_of_sizes_is_kept(text: str) -> None:
    """The texts are PyTorch's."""
    question, shape = GUARDS[text]
    graph = make_fx(lambda x: (x * 2, question(x))[0], tracing_mode="symbolic")(torch.ones(shape))
    assert graph.shape_env.format_guards() == text


def test_fake_tensors_with_symbolic_sizes() -> None:
    """Names and texts are PyTorch's."""
    env, real, vector = ShapeEnv(), torch.ones(4, 6), torch.ones(4)
    with FakeTensorMode(shape_env=env) as mode:
        x = mode.from_tensor(real)
        assert repr(x) == "FakeTensor(..., size=(s26, s49))" and repr((x @ x.t()).shape) == "torch.Size([s26, s26])"
        assert (
            str(x.stride()) == "(s49, 1)" and str(x[1:].shape[0]) == "s26 - 1" and f"{x.view(-1).shape[0]}" == "s26*s49"
        )
        assert str(x[2:].storage_offset()) == "2*s49" and mode.from_tensor(vector).shape[0] == x.shape[0]
    n = x.shape[0]
    assert (
        isinstance(n, torch.SymInt)
        and not isinstance(3, torch.SymInt)
        and isinstance(torch.sym_float(n), torch.SymFloat)
    )
    assert n.node.expr == "s26" and n.node.hint == hint_int(n) == 4 and free_symbols(x) == {"s26", "s49"}
    assert (
        [g.expr for g in env.guards][0] == "s26 > 2"
        and not is_concrete_int(n)
        and guard_int(n) == 4
        and is_concrete_int(n)
        and str(n + 1) == "5"
    )
    assert [g.expr for g in env.guards][-1] == "Eq(s26, 4)" and env.bind_symbols([x], [torch.ones(4, 8)]) == {
        "s26": 4,
        "s49": 8,
    }


def test_what_becomes_of_each_dim() -> None:
    env = ShapeEnv(duck_shape=False)
    bounds = StrictMinMaxConstraint(ValueRange(3, 10))
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC, DimDynamic.STATIC], constraint_sizes=[bounds, None])
    x = FakeTensorMode(shape_env=env).from_tensor(torch.ones(4, 4), symbolic_context=context, source="x")
    assert str(tuple(x.shape)) == "(s93, 4)" and x.shape[0] >= 3 and x.shape[0] < 11 and not env.guards
    assert env.var_to_range == {"s93": (3, 10)} and env.source_to_symbol == {"x.size()[0]": "s93"}
    assert not env.evaluate_guards_for_args([x], [torch.ones(11, 4)]) and env.evaluate_guards_for_args(
        [x], [torch.ones(7, 4)]
    )
    assert not env.evaluate_guards_for_args([x], [torch.ones(7, 5)])


class _Changing(torch.nn.Module):
    """Views, a change of a view of an argument, a size in arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 4)

    def forward(self, x: Any, y: Any) -> tuple[Any, ...]:
        h = self.inner(x).view(x.shape[0], 2, 2).flatten(1) + y.sum() * x.shape[0]
        y[1:].mul_(2)
        return h.relu(), x.expand(2, *x.shape).reshape(-1, 3), x.shape[0] * 2 + 1


@pytest.mark.parametrize("given", ["fake", "real"])
def test_modules_are_exported_with_symbolic_sizes(given: str) -> None:
    """Functional graphs: views that are changed take sizes from the inputs."""
    module, x, y = _Changing(), torch.randn(5, 3), torch.randn(7)
    args: Any = (x, y)
    if given == "fake":
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        args = mode.from_tensor(x), mode.from_tensor(y)
    graph, signature = aot_export_module(module, args, trace_joint=False, dynamic_shapes=given == "real")
    assert signature.user_inputs_to_mutate == {"slice_scatter": "arg3_1"}
    text = graph.code
    assert (
        "sym_size_int = torch.ops.aten.sym_size.int(arg2_1, 0)" in text
        and "view.default(addmm, [sym_size_int, 2, 2])" in text
    )
    assert "expand.default(arg2_1, [2, sym_size_int, 3])" in text and "mul_1 * 2" not in text
    for x, y in ((torch.randn(5, 3), torch.randn(7)), (torch.randn(2, 3), torch.randn(4))):
        changed = y.clone()
        wanted = module(x, changed)
        got = graph(*module.parameters(), x, y)
        assert (
            torch.equal(got[0], changed)
            and torch.equal(got[1], wanted[0])
            and torch.equal(got[2], wanted[1])
            and got[3] == wanted[2]
        )


def test_composites_make_their_tensors_where_their_input_is() -> None:
    x = torch.ones(3, 64, device="meta")
    assert x.mode().indices.shape == (3,) and torch.histc(x, 4, 0, 1).shape == (4,)
    frames = torch.stft(x, 16, return_complex=True)
    assert frames.shape == (3, 9, 17) and frames.device.type == "meta"


def test_what_a_graph_with_symbols_holds_for() -> None:
    """The answers are those of PyTorch 2.13."""
    graph = make_fx(lambda a, b: torch.cat([a, b]), tracing_mode="symbolic")(torch.randn(4, 5), torch.randn(3, 5))
    assert symbolic_shapes.fx_placeholder_targets(graph) == ["a_1", "b_1"]
    first, second = symbolic_shapes.fx_placeholder_vals(graph)
    assert str(first.shape[1]) == str(second.shape[1]) != str(first.shape[0])
    sizes = [((4, 5), (3, 5)), ((7, 5), (2, 5)), ((7, 6), (2, 5))]
    held = [symbolic_shapes.eval_guards(graph, torch.randn(a), torch.randn(b)) for a, b in sizes]
    assert held == [True, True, False]
    assert list(symbolic_shapes.bind_symbols(graph, torch.randn(7, 6), torch.randn(2, 6)).values()) == [7, 6, 2]


def test_conditions_that_are_taken_to_be_true() -> None:
    env = symbolic_shapes.ShapeEnv()
    unknown = env.create_unbacked_symint()
    assert not symbolic_shapes.statically_known_true(unknown == 3)
    assert symbolic_shapes.expect_true(unknown == 3)
    assert symbolic_shapes.statically_known_true(unknown == 3)
    assert not symbolic_shapes.expect_true(False)
    assert symbolic_shapes.guard_bool(True) is True
    assert symbolic_shapes.guard_float(2.0) == 2.0


def test_numbers_of_numpy_are_compared() -> None:
    largest, smallest = torch.sym_max(np.float32(10), 12), torch.sym_min(np.int64(10), np.float64(2))
    assert (type(largest), largest, type(smallest), smallest) == (float, 12.0, float, 2.0)
    assert torch.sym_max(np.int64(10), 12) == 12
    with pytest.raises(AssertionError):
        torch.sym_max(torch.tensor(1), 2)
