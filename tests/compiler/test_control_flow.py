"""`cond`, `while_loop`, `scan`, `map`, `associative_scan`: values, gradients, batches and errors, as PyTorch's."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._dynamo.exc import UncapturedHigherOrderOpError
from rushlight._higher_order_ops import associative_scan, invoke_subgraph, map, scan, while_loop

X = torch.arange(3.0)


def grads(t: Any, function: Any) -> list[Any]:
    """Results and gradients of a function of three leaves, as nested lists."""
    leaves = [
        t.tensor(rows, requires_grad=True) for rows in ([0.5, -1.0], [[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]], [2.0, 1.5])
    ]
    found = function(t, *leaves)
    sum(part.sum() for part in found).backward()
    return [part.tolist() for part in found] + [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]


def ops(t: Any) -> Any:
    return importlib.import_module(f"{t.__name__}._higher_order_ops")


DIFFERENTIABLE = {
    "cond, true": lambda t, c, y, w: [t.cond(c.sum() < 0, lambda c: c * w, lambda c: c.cos(), (c,)), y * 1, w * 1],
    "cond, false": lambda t, c, y, w: [t.cond(c.sum() > 0, lambda c: c * w, lambda c: c.cos() + w, (c,)), y * 1],
    "cond, nested": lambda t, c, y, w: [t.cond(t.tensor(True), lambda c: t.cond(t.tensor(False), lambda c: c * w, lambda c: c - w, (c,)) + y[0],
                                               lambda c: c + w + y[0], (c,))],
    "while": lambda t, c, y, w: [t.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, c * c + w), (t.tensor(0), c))[1], y * 1],
    "scan": lambda t, c, y, w: [*ops(t).scan(lambda c, x: (c * x + w, c * x), c, y)],
    "scan, reverse": lambda t, c, y, w: [*ops(t).scan(lambda c, x: (c * x + w, c * x), c, y, reverse=True)],
    "map": lambda t, c, y, w: [ops(t).map(lambda x, w: x * w + x.sin(), y, w), c * 1],
    "associative scan": lambda t, c, y, w: [ops(t).associative_scan(lambda a, b: a * b, y * w, 0, combine_mode="generic"), c * 1],
}  # fmt: skip


STORED = Path(__file__).resolve().parent.parent / "data" / "control_flow.json"


@pytest.mark.parametrize("case", DIFFERENTIABLE)
def test_values_and_gradients_are_pytorchs(case: str) -> None:
    """PyTorch's answers are stored: `python tests/compiler/test_control_flow.py` asks it again."""
    ours, expected = grads(torch, DIFFERENTIABLE[case]), json.loads(STORED.read_text())[case]
    for mine, other in zip(ours, expected, strict=True):
        if other is None or mine is None:  # where nothing depends on a tensor PyTorch may give zeros
            assert mine is other or not torch.tensor(other if mine is None else mine).count_nonzero()
        else:
            assert torch.allclose(torch.tensor(mine), torch.tensor(other), rtol=1e-5)


def test_trees_numbers_and_directions() -> None:
    assert torch.cond(True, lambda d: {"a": d["x"] + 1}, lambda d: {"a": d["x"] * 1}, ({"x": X},))["a"].tolist() == [
        1,
        2,
        3,
    ]
    assert (
        torch.cond(0, torch.sin, torch.neg, [X]).tolist() == [0, -1, -2] and torch.cond(1.0, lambda: 3, lambda: 4) == 3
    )
    count, x = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, X))
    assert count == 3 and x.tolist() == [0, 8, 16]
    assert while_loop(lambda d: d["i"] < 3, lambda d: ({"i": d["i"] + 1},), ({"i": torch.tensor(0)},))[0]["i"] == 3
    assert while_loop(lambda i: False, lambda i: (i + 1,), (X,))[0] is X
    carry, sums = scan(lambda c, x: (c + x, c * 1), torch.zeros(3), torch.ones(3, 2), dim=1)
    assert carry.tolist() == [2, 2, 2] and sums.tolist() == [[0, 1]] * 3
    assert scan(lambda c, x: (c + x, c + x), torch.zeros(()), torch.arange(3.0), reverse=True)[1].tolist() == [3, 3, 2]
    assert scan(lambda c, x: (c, x), torch.zeros(2), []) [1] == []  # fmt: skip
    first, second = map(
        lambda pair, k: (pair["a"] * k, pair["b"] + 1), {"a": torch.ones(3, 2), "b": torch.arange(3)}, 2
    )
    assert first.shape == (3, 2) and second.tolist() == [1, 2, 3]
    assert invoke_subgraph(lambda x: x + 1, "name", X)[0].tolist() == [1, 2, 3]


def test_batches_choose_and_stop_by_themselves() -> None:
    chosen = torch.vmap(lambda p, x: torch.cond(p, torch.sin, torch.cos, (x,)))(torch.tensor([True, False, True]), X)
    assert torch.equal(chosen, torch.where(torch.tensor([True, False, True]), X.sin(), X.cos()))
    counts, sums = torch.vmap(
        lambda n: while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), (torch.tensor(0), torch.tensor(0)))
    )(torch.tensor([0, 3, 5]))
    assert counts.tolist() == [0, 3, 5] and sums.tolist() == [0, 3, 10]
    per_item = torch.vmap(torch.func.grad(lambda x: torch.cond(x > 1, torch.square, torch.neg, (x,))))(X)
    assert per_item.tolist() == [-1, -1, 4]
    assert torch.func.jvp(lambda x: map(torch.square, x), (X,), (torch.ones(3),))[1].tolist() == [0, 2, 4]


def clobber(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


REFUSED = {
    "no number": (lambda: torch.cond(None, torch.sin, torch.cos, (X,)), RuntimeError, "Expected pred to be bool or tensor, but got None."),
    "two numbers": (lambda: torch.cond(X > 1, torch.sin, torch.cos, (X,)), RuntimeError, "Expected pred to be bool or single-element tensor"),
    "no tuple": (lambda: torch.cond(True, torch.sin, torch.cos, X), RuntimeError, "Expect operands to be a tuple of possibly nested dict/list"),
    "a number": (lambda: torch.cond(True, torch.sin, torch.cos, (X, 2)), RuntimeError, "that only consists of tensor leaves, but got"),
    "no function": (lambda: torch.cond(True, 3, torch.cos, (X,)), RuntimeError, "Expect both branches to be callable."),
    "the operand": (lambda: torch.cond(True, lambda x: x, torch.cos, (X,)), UncapturedHigherOrderOpError, "Encountered aliasing during higher"),
    "a view": (lambda: torch.cond(True, lambda x: x.view(3, 1), torch.cos, (X,)), UncapturedHigherOrderOpError, "do not support aliasing"),
    "a change": (lambda: torch.cond(True, clobber, torch.cos, (X.clone(),)), UncapturedHigherOrderOpError, "do not support input mutation"),
    "None": (lambda: torch.cond(True, lambda x: None, torch.cos, (X,)), UncapturedHigherOrderOpError, "Constants returned from branches must"),
    "no functions": (lambda: while_loop(3, torch.sin, (X,)), RuntimeError, "Expect cond_fn and body_fn to be callable."),
    "carried": (lambda: while_loop(torch.sin, torch.sin, X), RuntimeError, "Expect carried_inputs to be a tuple"),
    "a shape": (lambda: while_loop(lambda x: True, lambda x: (torch.cat([x, x]),), (X,)), UncapturedHigherOrderOpError,
                r"pair\[0\] differ in 'shape: torch.Size\(\[6\]\) vs torch.Size\(\[3\]\)'"),
    "a dtype": (lambda: while_loop(lambda x: True, lambda x: (x.double(),), (X,)), UncapturedHigherOrderOpError, "'dtype: torch.float64 vs"),
    "a count": (lambda: while_loop(lambda x: True, lambda x: (x + 1, x + 2), (X,)), UncapturedHigherOrderOpError, "same number of outputs"),
    "a condition": (lambda: while_loop(lambda x: x > 1, lambda x: (x + 1,), (X,)), UncapturedHigherOrderOpError, "Expected cond_fn to return"),
    "scan": (lambda: scan(3, X, X), RuntimeError, "Combine_fn must be a callable, but got 3"),
    "scan's dim": (lambda: scan(lambda c, x: (c, x), X, X, dim=5), IndexError, r"expected to be in range of \[-1, 0\], but got 5"),
    "scan's direction": (lambda: scan(lambda c, x: (c, x), X, X, reverse=3), RuntimeError, "Reverse must be a bool, but got <class 'int'>"),
    "scan of nothing": (lambda: scan(lambda c, x: (c, x), X, X[:0]), RuntimeError, "scan dimension > 0"),
    "scan's init": (lambda: scan(lambda c, x: (c, x), [], X), RuntimeError, r"scan\(\) operator requires init leaves."),
    "scan's number": (lambda: scan(lambda c, x: (c, x), 1, X), RuntimeError, "All init leaves must be a Tensor but got 1"),
    "scan's carry": (lambda: scan(lambda c, x: (c.sum(), c + x), X, X), UncapturedHigherOrderOpError, "Expected init and carry to have same meta"),
    "scan's alias": (lambda: scan(lambda c, x: (c + 1, x), X[0], X), UncapturedHigherOrderOpError, "Encountered aliasing"),
    "map": (lambda: map(torch.sin, 3), RuntimeError, r"Mapped xs can only consist of tensors. Got xs \[3\]."),
    "map's sizes": (lambda: map(lambda p: p[0] * 1, [X, X[:2]]), RuntimeError, "Leading dimensions of mapped xs must be consistent. Got shapes"),
    "map of nothing": (lambda: map(torch.sin, X[:0]), RuntimeError, "Leading dimensions of mapped xs cannot be 0."),
    "combine": (lambda: associative_scan(3, X, 0), ValueError, "Combine_fn must be a callable, but got 3"),
    "combine's mode": (lambda: associative_scan(torch.add, X, 0, combine_mode="x"), ValueError, "must either 'pointwise' or 'generic', but got x"),
    "combine's dim": (lambda: associative_scan(torch.add, X, 7), IndexError, r"Dimension out of range \(expected to be in range of \[-1, 0\]"),
    "combine's shape": (lambda: associative_scan(lambda a, b: (a + b).sum(), torch.ones(3, 2), 0), RuntimeError, r"of shape \(\) for one of shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()


if __name__ == "__main__":
    theirs = importlib.import_module("torch")
    STORED.write_text(
        json.dumps({case: grads(theirs, function) for case, function in DIFFERENTIABLE.items()}, indent=1) + "\n"
    )


@pytest.mark.parametrize("partition", ["default_partition", "min_cut_rematerialization_partition"])
def test_graphs_that_are_traced_ahead_choose_and_loop(partition: str) -> None:
    from rushlight._functorch import partitioners
    from rushlight.compiler.aot_backends import aot_autograd

    layer = torch.nn.Linear(3, 3)
    targets: list[list[str]] = []

    def keep(gm: Any, example_inputs: Any) -> Any:
        targets.append([str(getattr(n.target, "__name__", "")) for n in gm.graph.nodes])
        return gm.forward

    def program(x: Any, n: Any) -> Any:
        chosen = torch.cond(
            x.sum() > 0, lambda x: (layer(x).sin(), x.exp()), lambda x: (x * 2, x.clone().add_(1)), (x,)
        )
        count, last = torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2), (n * 0, x.detach()))
        return *chosen, count, last

    backend = aot_autograd(fw_compiler=keep, partition_fn=getattr(partitioners, partition))
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    for row in ([1.0, 2.0, 3.0], [-1.0, 0.5, -2.0]):
        results = []
        for function in (compiled, program):
            x = torch.tensor(row, requires_grad=True)
            layer.zero_grad()
            found = function(x, torch.tensor(3))
            (found[0].sum() + (found[1] * 3).sum()).backward()
            results.append(
                [*found, x.grad, *[torch.zeros(3) if p.grad is None else p.grad for p in layer.parameters()]]
            )
        assert all(torch.equal(a, b) or not (a.any() or b.any()) for a, b in zip(*results, strict=True))
    assert "cond" in targets[0] and "while_loop" in targets[0] and "cond" in targets[1] and len(targets) == 2
