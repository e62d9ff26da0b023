"""Functions that cost less as they are: once their conditions are known to hold, native code calls the function itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import compile_function
from rushlight._dynamo.utils import counters

X = torch.arange(24.0).reshape(4, 6)
W = torch.ones(4, 6, requires_grad=True)

SMALL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "views": (lambda x: x.view(6, 4).t()[1:3].unsqueeze(0), (X,)),
    "views of a leaf": (lambda w: w.view(6, 4).t()[1:3], (W,)),
    "an element": (lambda x: x[1, 2], (X,)),
    "a number": (lambda x: x.item(), (torch.ones(1),)),
    "an operator with a history": (lambda w, x: w + x, (W, X)),
    "in place": (lambda x, y: x.add_(y, alpha=0.5), (torch.zeros(4, 6), X)),
}
LARGER: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an operator": (lambda x: x + 1, (X,)),
    "two operators": (lambda w, x: (w + x) * w, (W, X)),
    "any number of arguments": (lambda *xs: xs[0][1], (X,)),
    "what asks whether it is compiled": (lambda x: x[0] if torch.compiler.is_compiling() else x[1], (X,)),
}


def settled(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The function compiled and called until native code answers, and its one segment."""
    compiled = compile_function(function)
    for _ in range(4):
        compiled(*args)
    (segment,) = compiled.entry.segments
    return compiled, segment


@pytest.mark.parametrize("name", [*SMALL, *LARGER])
def test_which_functions_run_as_they_are(name: str) -> None:
    function, args = {**SMALL, **LARGER}[name]
    assert settled(function, args)[1].plain is (name in SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_results_strides_and_histories_are_those_of_eager_calls(name: str) -> None:
    function, args = SMALL[name]
    compiled, _ = settled(function, args)
    held = [x.detach().clone() for x in args]
    mine = compiled(*args)
    for x, before in zip(args, held, strict=True):
        x.detach().copy_(before)
    theirs = function(*args)
    if not isinstance(mine, torch.Tensor):
        assert type(mine) is type(theirs) and mine == theirs
        return
    assert torch.equal(mine, theirs) and mine.stride() == theirs.stride() and mine.data_ptr() is not None
    assert (mine.grad_fn is None) is (theirs.grad_fn is None)
    assert (mine._base is None) is (theirs._base is None)


def test_conditions_are_still_asked() -> None:
    scale = [2]

    def function(x):
        return x[scale[0], 1]

    counters.clear()
    compiled, segment = settled(function, (X,))
    assert segment.plain
    scale[0] = 3
    assert compiled(X) == X[3, 1]
    assert len(compiled.entry.segments) == 2
    wide = torch.arange(40.0).reshape(4, 10)
    assert compiled(wide) == wide[3, 1]
    assert len(compiled.entry.segments) == 3


def test_errors_leave_the_function_as_they_are() -> None:
    def function(x, y):
        return x.add_(y)

    compiled, segment = settled(function, (torch.zeros(3), torch.ones(3)))
    assert segment.plain
    leaf = torch.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        compiled(leaf, torch.ones(3))


def test_gradients() -> None:
    def function(w, x):
        return w * x

    compiled, segment = settled(function, (W, X))
    assert segment.plain
    found = []
    for each in (compiled, function):
        w = W.detach().clone().requires_grad_()
        each(w, X).sum().backward()
        found.append(w.grad)
    assert torch.equal(*found)
