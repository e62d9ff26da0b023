"""Calls that are made when their value is asked for, named parts, assertions and tensor types in scripts."""

from __future__ import annotations

from typing import List, Optional  # noqa: UP035

import pytest

import rushlight as torch
from rushlight import Tensor
from rushlight._awaits import _Await as Await
from rushlight.jit.frontend.errors import CompileError


def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_a_call_is_made_once_and_when_it_is_asked_for():
    calls = []

    def count(x):
        calls.append(x)
        return x + 1

    later = torch.jit._awaitable(count, 1)
    assert calls == [] and not later.is_nowait() and later.fn() is count and later.args() == (1,)
    assert torch.jit._awaitable_wait(later) == torch.jit._awaitable_wait(later) == 2 and calls == [1]
    known = torch.jit._awaitable_nowait(torch.ones(2))
    assert known.is_nowait() and known.dtype is torch.float32 and isinstance(known, torch._C._Await)
    assert torch.jit._awaitable_wait(known).tolist() == [1.0, 1.0]


def test_scripts_await():
    def fn(x: Tensor, given: Await[Tensor]):
        own: Await[Tensor] = torch.jit._awaitable(doubled, x)
        x = x + 1  # the call has the value from before
        known = torch.jit._awaitable_nowait(3)
        return (
            torch.jit._awaitable_wait(own),
            own.sum(),
            torch.jit._awaitable_wait(given),
            torch.jit._awaitable_wait(known),
        )

    scripted = torch.jit.script(fn)
    own, total, given, known = scripted(torch.ones(2), torch.jit._awaitable(doubled, torch.ones(1)))
    assert (own.tolist(), total.item(), given.tolist(), known) == ([2.0, 2.0], 4.0, [2.0], 3)
    assert "Await(Tensor)" in str(scripted.graph) and "prim::awaitable_wait" in str(scripted.graph)

    def nested(x: Tensor) -> Await[Await[Tensor]]:
        return torch.jit._awaitable_nowait(torch.jit._awaitable(doubled, x))

    assert torch.jit.script(nested)(torch.ones(1)).wait().wait().tolist() == [2.0]


def test_named_parts_are_seen_by_the_profiler():
    def fn(x: Tensor):
        with torch.profiler.record_function("part"):
            y = x * 3
        return y

    scripted = torch.jit.script(fn)
    with torch.profiler.profile() as found:
        assert scripted(torch.ones(2)).tolist() == [3.0, 3.0]
    assert [e.name for e in found.events() if e.is_user_annotation] == ["part"]


def test_check_is_an_assertion():
    def fn(x: int):
        torch._check(x > 0, "too small")
        torch._check(x < 9)
        return x

    scripted = torch.jit.script(fn)
    assert scripted(3) == 3
    with pytest.raises(torch.jit.Error, match="AssertionError: too small"):
        scripted(0)
    with pytest.raises(torch.jit.Error, match="AssertionError: "):
        scripted(10)

    def wrong(x: int):
        torch._check()
        return x

    with pytest.raises(CompileError, match="expects 1 or 2 arguments, got 0"):
        torch.jit.script(wrong)


def test_tensors_of_a_type_and_norms_into_a_tensor():
    def fn(x: Tensor):
        out = torch.empty(2)
        made = torch.norm(x, 2.0, [1], False, out=out)
        return torch.LongTensor([1, 2]), torch.FloatTensor(2, 3), out, made

    ints, sized, out, made = torch.jit.script(fn)(torch.tensor([[3.0, 4.0], [6.0, 8.0]]))
    assert ints.dtype is torch.int64 and ints.tolist() == [1, 2]
    assert sized.dtype is torch.float32 and sized.shape == (2, 3)
    assert out.tolist() == made.tolist() == [5.0, 10.0]


class Leaf:
    def __init__(self) -> None:
        self.number = 4


class Tree:
    __slots__ = ("child", "name")

    def __init__(self, name: str):
        self.name = name
        self.child = torch.jit.annotate(Optional[Leaf], None)  # noqa: UP045

    def grow(self) -> None:
        self.child = Leaf()


def test_attributes_take_annotated_types_and_classes_may_have_slots():
    def fn(name: str) -> int:
        tree = Tree(name)
        tree.grow()
        child = tree.child
        return 0 if child is None else child.number + len(tree.name)

    assert torch.jit.script(fn)("oak") == 7


class Sometimes:
    def __init__(self, x: bool):
        if x:
            self.there = 1


def test_refused_scripts():
    def deleted(x: Tensor):
        y = x
        del y
        return y  # noqa: F821

    def item(x: Tensor):
        pair = (x, x)
        pair[0] = x + 1
        return pair

    for fn, message in (
        (deleted, "undefined value y"),
        (item, r"Tuple\[Tensor, Tensor\] does not support subscripted"),
    ):
        with pytest.raises(CompileError, match=message):
            torch.jit.script(fn)
    with pytest.raises(CompileError, match="First assignment cannot be in a control-flow block"):
        torch.jit.script(Sometimes)


@torch.jit.interface
class Step(torch.nn.Module):
    def step(self, x: Tensor) -> Tensor:
        pass


class Twice(torch.nn.Module):
    def step(self, x: Tensor) -> Tensor:
        return x * 2


class Other(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Stepping(torch.nn.Module):
    part: Step

    def __init__(self):
        super().__init__()
        self.part = Twice()

    def forward(self, x: Tensor) -> Tensor:
        return self.part.step(x)


def test_a_module_without_the_interface_does_not_take_its_place():
    module = torch.jit.script(Stepping())
    with pytest.raises(RuntimeError, match="is not compatible with interface"):
        module.part = torch.jit.script(Other())
    with pytest.raises(RuntimeError, match="not scripted"):
        module.part = Twice()
    module.part = torch.jit.script(Twice())
    assert module(torch.ones(1)).item() == 2.0


class Held(torch.nn.Module):
    listed: List[int]  # noqa: UP006

    def __init__(self):
        super().__init__()
        self.scale, self.shift = torch.tensor(2.0), 1
        self.listed = [1, 2]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift

    @torch.jit.export
    def shifted(self, x: Tensor) -> Tensor:
        return x + self.shift


class Holding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Held(), Held()

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + self.second(x)

    @torch.jit.export
    def numbers(self) -> List[int]:  # noqa: UP006
        return self.first.listed


def test_frozen_modules_are_apart_and_read_what_is_preserved():
    x = torch.ones(())
    module = torch.jit.script(Holding()).eval()
    for kept in (["first"], ["first.scale"]):
        frozen = torch.jit.freeze(module, kept)
        assert frozen(x).item() == 6.0 and frozen._c.hasattr("first") and not frozen._c.hasattr("second")
        frozen.first.scale = torch.tensor(5.0)
        assert frozen(x).item() == 9.0 and module(x).item() == 6.0
    assert torch.jit.freeze(module, ["first.shifted"]).first.shifted(x).item() == 2.0
    with pytest.raises(RuntimeError, match=r"first\.absent"):
        torch.jit.freeze(module, ["first.absent"])
    frozen = torch._C._freeze_module(module._c, ["numbers"])
    module.first.listed.append(3)
    assert frozen.numbers() == [1, 2] and frozen.forward(x).item() == 6.0
