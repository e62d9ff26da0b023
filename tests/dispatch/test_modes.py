"""Dispatch modes: what they see, in which order, and what they may do; every program beside what PyTorch 2.13 ran."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.programs import PROGRAMS, inputs

import rushlight as torch
import rushlight.nn.functional as F
from rushlight.utils import _python_dispatch as pages
from rushlight.utils._python_dispatch import TorchDispatchMode

STORED = json.loads(gzip.decompress((Path(__file__).parent / "traces.json.gz").read_bytes()))["traces"]


def shown(value: Any) -> str:
    """A value of a call in the words of the stored traces."""
    if isinstance(value, torch.Tensor):
        return "T"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return repr(value) if isinstance(value, str) else str(value)


class Calls(TorchDispatchMode):
    """Writes down every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [shown(a) for a in args] + [f"{k}={shown(v)}" for k, v in (kwargs or {}).items()]
        self.calls.append(f"{str(func).removeprefix('aten.')}({', '.join(given)})")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_are_those_of_pytorch(name: str) -> None:
    """Forward and backward, with arguments; and the gradients are those of the program without a mode."""
    program, shapes = PROGRAMS[name]
    given = inputs(torch, shapes)
    mode = Calls()
    with mode:
        out = program(torch, *given)
    forward, mode.calls = mode.calls, []
    with mode:
        out.backward(torch.ones(out.shape, dtype=out.dtype))
    seed = "ones.default"
    assert forward == STORED[name][0]
    assert [c for c in mode.calls if not c.startswith(seed)] == [c for c in STORED[name][1] if not c.startswith(seed)]
    plain = inputs(torch, shapes)
    again = program(torch, *plain)
    again.backward(torch.ones(again.shape, dtype=again.dtype))
    assert torch.allclose(out, again, atol=1e-6)
    for a, b in zip(given, plain, strict=True):
        assert (a.grad is None) == (b.grad is None) and (a.grad is None or torch.allclose(a.grad, b.grad, atol=1e-5))


def test_modes_nest_and_are_away_while_they_are_asked() -> None:
    order: list[str] = []

    class Named(TorchDispatchMode):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            order.append(self.name)
            assert self not in pages._get_current_dispatch_mode_stack()
            return func(*args, **(kwargs or {}))

    outer, inner = Named("outer"), Named("inner")
    with outer, inner:
        assert pages._get_current_dispatch_mode() is inner and pages._len_torch_dispatch_stack() == 2
        torch.ones(2).neg()
        with pages._disable_current_modes() as held:
            torch.ones(2).neg()
            assert held == [outer, inner] and not pages.is_in_torch_dispatch_mode()
        with pages._pop_mode_temporarily() as popped:
            assert popped is inner
            torch.zeros(1)
    assert order == ["inner", "outer"] * 2 + ["outer"]
    assert pages._get_current_dispatch_mode() is None and not pages.is_in_torch_dispatch_mode()


def test_results_of_a_mode_are_used_and_get_their_history() -> None:
    class Twice(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.ops.aten.mul.Tensor else out

    x = torch.ones(2, requires_grad=True)
    with Twice():
        y = x * 3
    assert y.tolist() == [6.0, 6.0] and y.grad_fn is not None and y.grad_fn.name() == "MulBackward0"
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 3.0]


def test_errors_leave_the_stack_as_it_was() -> None:
    class Broken(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), Broken():
        torch.ones(2)
    assert pages._get_current_dispatch_mode() is None
    assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]


def test_a_mode_decorates_a_function() -> None:
    mode = Calls()

    @mode
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.neg()

    f(torch.ones(1))
    f(torch.ones(1))
    assert mode.calls == ["neg.default(T)"] * 2


def test_gradients_of_gradients_are_seen() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    mode = Calls()
    with mode:
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
    assert h.tolist() == [6.0, 12.0]
    assert sum(c.startswith("pow.Tensor_Scalar") for c in mode.calls) == 3


def test_views_and_changes_in_place_keep_their_meaning() -> None:
    with Calls():
        x = torch.ones(3, requires_grad=True)
        y = x * 1
        y[0] = 5.0
        y[1:].mul_(2)
        y.sum().backward()
    assert y.tolist() == [5.0, 2.0, 2.0] and x.grad is not None and x.grad.tolist() == [0.0, 2.0, 2.0]


def test_a_changed_saved_tensor_is_an_error() -> None:
    with Calls():
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        z = y * y
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_operators_without_a_formula_are_one_opaque_call() -> None:
    x = torch.tensor([[2.0, 0.5], [0.5, 1.0]], requires_grad=True)
    mode = Calls()
    with mode:
        torch.linalg.eig(x).eigenvalues.abs().sum().backward()
    assert any(c.startswith("rushlight.linalg_eig_backward") for c in mode.calls)
    plain = x.detach().requires_grad_()
    torch.linalg.eig(plain).eigenvalues.abs().sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, plain.grad)


def test_automatic_casts_come_before_modes() -> None:
    """A mode sees the casts and the operators that they lead to, and no casts happen below it."""
    seen: list[Any] = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((str(func), [x.dtype for x in args if isinstance(x, torch.Tensor)]))
            return func(*args, **(kwargs or {}))

    x, w = torch.ones(2, 3), torch.ones(3, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16), Log():
        y = x @ w
    assert seen == [
        ("aten._to_copy.default", [torch.float32]),
        ("aten._to_copy.default", [torch.float32]),
        ("aten.mm.default", [torch.bfloat16, torch.bfloat16]),
    ]
    y.sum().backward()
    assert y.dtype is torch.bfloat16 and w.grad is not None and w.grad.tolist() == [[2.0] * 3] * 3


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pooling_with_indices_gives_both(dims: int) -> None:
    names = [name for name in dir(F) if name.endswith(f"{dims}d_with_indices")]
    assert len(names) == (2 if dims == 1 else 3)
    x = torch.randn(1, 2, *[6] * dims)
    for name in names:
        function, wants = getattr(F, name), {"output_size": 2} if "fractional" in name else {}
        if wants:
            wants["_random_samples"] = torch.full((1, 2, dims), 0.4)
        plain = function(x, 2, **wants)
        with Passing():
            made = function(x, 2, **wants)
        assert len(plain) == len(made) == 2, name
        assert all(torch.equal(a, b) for a, b in zip(plain, made, strict=True)), name
        short = getattr(F, name.removesuffix("_with_indices"))
        with Passing():
            assert torch.equal(short(x, 2, **wants), plain[0])
            assert len(short(x, 2, return_indices=True, **wants)) == 2


class Passing(TorchDispatchMode):
    """Calls every operator as it is."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
