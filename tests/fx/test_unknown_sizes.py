"""Sizes that only elements tell, in fake tensors and graphs of aten operators: symbols without a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    ShapeEnv,
    free_unbacked_symbols,
    guard_or_false,
    guard_or_true,
    has_hint,
    statically_known_true,
)

X = torch.arange(12.0).reshape(4, 3) - 5
R = torch.tensor([1, 2, 0, 1])


def checked(x: Any, n: Any) -> Any:
    u = n.item()
    torch._check(u >= 0)
    torch._check(u <= x.shape[0])
    return x[:u] * 2


# name: (function, arguments, operators of the graph as PyTorch 2.13 gives them, the shapes of their results)
GRAPHS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str], list[str]]] = {
    "nonzero": (lambda x: x.nonzero() + 1, (X,), ["nonzero.default(x_1)", "add.Tensor(nonzero, 1)"], ["u0, 2", "u0, 2"]),
    "a mask": (
        lambda x: (x * 2)[x > 0] + 1, (X,), ["mul.Tensor(x_1, 2)", "gt.Scalar(x_1, 0)", "index.Tensor(mul, [gt])", "add.Tensor(index, 1)"],
        ["s75, s96", "s75, s96", "u0", "u0"],
    ),
    "masked_select": (
        lambda x: torch.masked_select(x, x > 0) * 2, (X,), ["gt.Scalar(x_1, 0)", "masked_select.default(x_1, gt)", "mul.Tensor(masked_select, 2)"],
        ["s75, s96", "u0", "u0"],
    ),
    "unique": (
        lambda x: torch.unique(x) * 2, (R,), ["_unique2.default(x_1)", "<getitem>(_unique2, 0)", "<getitem>(_unique2, 1)", "<getitem>(_unique2, 2)", "mul.Tensor(getitem, 2)"],
        ["-", "u0", "0", "0", "u0"],
    ),
    "repeat_interleave": (
        lambda x, r: torch.repeat_interleave(x, r, 0) * 2, (X, R), ["repeat_interleave.Tensor(r_1)", "index_select.default(x_1, 0, repeat_interleave)", "mul.Tensor(index_select, 2)"],
        ["u0", "u0, s96", "u0, s96"],
    ),
    "two": (
        lambda x: torch.cat([x.nonzero(), (x > 1).nonzero()]), (X,), ["nonzero.default(x_1)", "gt.Scalar(x_1, 1)", "nonzero.default(gt)", "cat.default([nonzero, nonzero_1])"],
        ["u0, 2", "s75, s96", "u1, 2", "u0 + u1, 2"],
    ),
    "a size as a number": (
        lambda x: x.nonzero().shape[0] * 2 + x, (X,), ["nonzero.default(x_1)", "sym_size.int(nonzero, 0)", "<mul>(sym_size_int, 2)", "add.Tensor(x_1, mul)"],
        ["u0, 2", "u0", "2*u0", "s75, s96"],
    ),
    "a number as a size": (
        lambda n: torch.zeros(n.item(), 2) + 1, (torch.tensor(3),), ["_local_scalar_dense.default(n_1)", "zeros.default([_local_scalar_dense, 2])", "add.Tensor(zeros, 1)"],
        ["u0", "u0, 2", "u0, 2"],
    ),
    "a checked length": (
        checked, (X, torch.tensor(3)), ["_local_scalar_dense.default(n_1)", "slice.Tensor(x_1, 0, 0, _local_scalar_dense)", "mul.Tensor(slice_1, 2)"],
        ["u0", "u0, s96", "u0, s96"],
    ),
}  # fmt: skip


def written(node: Any) -> str:
    name = str(node.target).removeprefix("aten.") if "aten" in str(node.target) else f"<{node.target.__name__}>"
    return f"{name}({', '.join(map(str, node.args))})"


def shape(value: Any) -> str:
    if isinstance(value, tuple):
        return "-"
    return ", ".join(map(str, value.shape)) if isinstance(value, torch.Tensor) else str(value)


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_those_of_pytorch_and_run_at_other_sizes(name: str) -> None:
    function, args, operators, shapes = GRAPHS[name]
    graph = make_fx(function, tracing_mode="symbolic")(*args)
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    assert [written(node) for node in nodes] == operators
    assert [shape(node.meta["val"]) for node in nodes] == shapes
    for more in [X * 2 - 3, X[:3] + 1] if args[0] is X else [args[0], args[0] + 1]:
        given = (more, *[each[: len(more)] if each.dim() else each - 1 for each in args[1:]])
        wanted, found = function(*given), graph(*given)
        assert torch.equal(wanted, found)
        assert wanted.dtype is found.dtype


@pytest.mark.filterwarnings("ignore:_check_is_size")
def test_conditions_are_decided_by_bounds_or_by_nobody() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        z = mode.from_tensor(X).nonzero()
    n = z.shape[0]
    assert (str(z.shape), str(z.stride()), str(z.numel())) == ("torch.Size([u0, 2])", "(1, u0)", "2*u0")
    assert isinstance(n, torch.SymInt)
    assert free_unbacked_symbols(z) == {"u0"}
    assert not has_hint(n)
    assert n.node.hint is None
    condition = n > 3
    assert isinstance(condition, torch.SymBool)
    assert (str(condition), str(n != 4)) == ("u0 > 3", "Ne(u0, 4)")
    assert (statically_known_true(condition), guard_or_false(condition), guard_or_true(condition)) == (
        False,
        False,
        True,
    )
    assert n >= 0
    for read in (lambda: bool(condition), lambda: bool(n == 0), lambda: int(n), lambda: range(n), lambda: {n: 1}):
        with pytest.raises(GuardOnDataDependentSymNode, match="data-dependent expression"):
            read()
    torch._check(condition)
    assert n > 3
    assert n >= 2
    assert not n < 4
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        torch._check(n < 2)
    torch.sym_constrain_range(n, max=9)
    assert n <= 9
    torch._check(n != 6)
    assert n != 6
    with mode:
        k = torch.empty((), dtype=torch.int64).item()
    torch._check_is_size(k, max=5)
    assert k >= 0
    assert k <= 5


def test_what_decides_the_course_is_an_error() -> None:
    with pytest.raises(GuardOnDataDependentSymNode, match="u0 > 3"):
        make_fx(lambda x: x + 1 if x.nonzero().shape[0] > 3 else x, tracing_mode="symbolic")(X)
    with pytest.raises(GuardOnDataDependentSymNode, match="u0"):
        make_fx(lambda x, n: x.reshape([len(range(n.item())), -1]), tracing_mode="symbolic")(X, torch.tensor(3))


def test_without_symbols_there_are_no_such_results() -> None:
    with FakeTensorMode() as mode, pytest.raises(DynamicOutputShapeException):
        mode.from_tensor(X).nonzero()
