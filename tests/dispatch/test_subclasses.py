"""Classes with `__torch_dispatch__`: wrappers without memory, and tensors that look at their operators."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

import rushlight as torch
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.utils._python_dispatch import (
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
    transform_subclass,
)
from rushlight.utils._pytree import tree_map


class Two(torch.Tensor):
    """Two tensors of one shape, on which every operator runs."""

    seen: list[str] = []
    __torch_function__ = torch._C._disabled_torch_function_impl
    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def __new__(cls: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device, requires_grad=a.requires_grad
        )

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b = a, b

    def __repr__(self) -> str:
        return f"Two({self.a}, {self.b})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Two(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        cls.seen.append(str(func))

        def run(name: str) -> Any:
            def pick(x: Any) -> Any:
                return getattr(x, name) if isinstance(x, Two) else x

            return func(*tree_map(pick, args), **tree_map(pick, kwargs))

        first, second = run("a"), run("b")
        if isinstance(first, torch.Tensor):
            out: Any = Two(first, second)
        elif isinstance(first, (list, tuple)):
            out = type(first)(Two(x, y) for x, y in zip(first, second, strict=True))
        else:
            out = first
        return return_and_correct_aliasing(func, args, kwargs, out)


def two() -> Any:
    return Two(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 2)).requires_grad_()


def test_a_wrapper_runs_forward_and_backward() -> None:
    x = two()
    Two.seen.clear()
    y = (x * x + 1).sum()
    assert type(y) is Two and y.requires_grad and y.a.item() == 34.0 and y.b.item() == 4.0
    y.backward()
    assert (
        type(x.grad) is Two and x.grad.a.tolist() == [[2.0, 4.0], [6.0, 8.0]] and x.grad.b.tolist() == [[0.0] * 2] * 2
    )
    assert (
        Two.seen[:3] == ["aten.mul.Tensor", "aten.add.Tensor", "aten.sum.default"] and "aten.expand.default" in Two.seen
    )


def test_composites_reach_a_wrapper_as_operators() -> None:
    x, w = two(), torch.ones(3, 2, requires_grad=True)
    Two.seen.clear()
    out = torch.nn.functional.linear(x, w, torch.zeros(3))
    assert Two.seen == ["aten.addmm.default"] and out.shape == (2, 3)
    module = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    assert type(module(x)) is Two
    assert [type(p) for p in x.split(1)] == [Two, Two] and x[0].shape == (2,) and x.t().shape == (2, 2)


def test_changes_in_place_give_the_wrapper_itself() -> None:
    x = two().detach()
    y = x.add_(1)
    assert y is x and x.a.tolist() == [[2.0, 3.0], [4.0, 5.0]] and x.b.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_facts_of_a_wrapper_come_from_how_it_was_made() -> None:
    x = two()
    assert (x.shape, x.dtype, x.device.type, x.stride(), x.dim(), x.numel()) == (
        (2, 2),
        torch.float32,
        "cpu",
        (2, 1),
        2,
        4,
    )
    assert is_traceable_wrapper_subclass(x) and not is_traceable_wrapper_subclass(torch.ones(1))
    moved = transform_subclass(x, lambda name, inner: inner + 1)
    assert moved.a.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert isinstance(x, torch.Tensor) and repr(x).startswith("Two(")


def test_a_mode_is_asked_before_a_class() -> None:
    order: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            order.append("mode")
            assert types == (Two,)
            Two.seen.clear()
            out = func(*args, **(kwargs or {}))
            order.extend(Two.seen)
            return out

    x = two()
    with Mode():
        x.detach()
    assert order[-2:] == ["mode", "aten.detach.default"]


def test_declining_everywhere_is_an_error_that_names_who_declined() -> None:
    class Never(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    x = torch.Tensor._make_subclass(Never, torch.ones(2))
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'aten.exp.default'[\s\S]*Never"):
        torch.exp(x)


def test_a_class_may_call_the_default() -> None:
    class Logged(torch.Tensor):
        seen: list[str] = []

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs)

    x = torch.Tensor._make_subclass(Logged, torch.ones(2), True)
    (x * 2).sum().backward()
    assert Logged.seen[0] == "aten.mul.Tensor" and x.grad is not None and x.grad.tolist() == [2.0, 2.0]


def test_what_a_wrapper_needs() -> None:
    class Plain(torch.Tensor):
        pass

    with pytest.raises(RuntimeError, match="nontrivial __torch_dispatch__"):
        torch.Tensor._make_wrapper_subclass(Plain, (2,))
    with pytest.raises(RuntimeError, match="floating point"):
        torch.Tensor._make_wrapper_subclass(Two, (2,), dtype=torch.int64, requires_grad=True)


class Around(torch.Tensor):
    """A wrapper with results that are no wrappers; it says nothing of functions."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*[a.inner if isinstance(a, Around) else a for a in args], **(kwargs or {}))


def test_results_are_what_the_dispatch_gives() -> None:
    """As in PyTorch, a class with a dispatch and no override of functions has the disabled override."""
    assert Around.__torch_function__ is torch._C._disabled_torch_function_impl
    assert type(Around(torch.ones(2)) * 2) is torch.Tensor


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_graphs_see_what_a_wrapper_does_inside(mode: str) -> None:
    graph = make_fx(lambda x: Around(x) * x + 1, tracing_mode=mode)(torch.ones(2))
    assert graph(torch.full((2,), 3.0)).tolist() == [10.0, 10.0]
    assert not list(graph.buffers())


class Held(torch.Tensor):
    """A wrapper that keeps what it wraps in a slot, and wraps the results that have its shape."""

    __slots__ = ("inner",)
    inner: torch.Tensor

    @staticmethod
    def __new__(cls: Any, inner: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def __repr__(self) -> str:
        return super().__repr__(tensor_contents=f"inner={self.inner.tolist()}")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def bare(x: Any) -> Any:
            return x.inner if isinstance(x, Held) else x

        out = func(*tree_map(bare, args), **tree_map(bare, kwargs or {}))
        return Held(out) if isinstance(out, torch.Tensor) and out.shape == args[0].shape else out


def copies(x: Any) -> list[Any]:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    with torch.serialization.safe_globals([Held]):
        loaded = torch.load(file)
    return [copy.deepcopy(x), loaded, pickle.loads(pickle.dumps(x))]


def test_copies_of_a_wrapper_have_its_slots_and_attributes() -> None:
    x = Held(torch.arange(3.0))
    x.note = ["n"]
    for made in copies(x):
        assert type(made) is Held and made.inner.tolist() == [0.0, 1.0, 2.0] and made.inner is not x.inner
        assert made.note == ["n"] and made.note is not x.note
    assert copy.copy(x).inner is x.inner
    parameter = torch.nn.Parameter(x)
    again = copy.deepcopy(parameter)
    assert isinstance(again, torch.nn.Parameter) and type(again) is Held and again.requires_grad


def test_a_wrapper_that_clone_unwraps_has_no_copy_and_is_no_parameter() -> None:
    class Bare(Held):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*tree_map(lambda x: x.inner if isinstance(x, Bare) else x, args), **(kwargs or {}))

    with pytest.raises(RuntimeError, match="properly implement clone"):
        copy.deepcopy(Bare(torch.ones(2)))
    with pytest.raises(RuntimeError, match="returns an instance of the same type"):
        torch.nn.Parameter(Bare(torch.ones(2)))


def test_printed_forms_of_subclasses_and_parameters() -> None:
    class Mine(torch.Tensor):
        pass

    class Weight(torch.nn.Parameter):
        pass

    plain = torch.ones(2)
    assert repr(torch.nn.Parameter(plain.as_subclass(Mine))) == "Parameter(Mine([1., 1.], requires_grad=True))"
    assert repr(Weight(plain)) == "Parameter containing:\nParameter(Weight([1., 1.], requires_grad=True))"
    assert repr(torch.nn.Parameter(plain)) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert repr(Held(plain)) == "Held(inner=[1.0, 1.0])"
    assert repr(torch.nn.Parameter(Held(plain))) == "Parameter(Held(inner=[1.0, 1.0], requires_grad=True))"
