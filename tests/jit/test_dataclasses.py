"""Dataclasses in scripts: their generated methods give what Python's give."""

import dataclasses
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any, List, Optional  # noqa: UP035

import pytest

import rushlight as torch


@dataclass
class Point:
    x: float
    y: float = 2.0

    def square(self) -> float:
        return self.x * self.x + self.y * self.y


@dataclass(order=True)
class Version:
    major: int
    minor: Optional[int] = None  # noqa: UP045
    name: str = field(default="z", compare=False)


@dataclass
class Scaled:
    a: int
    scale: InitVar[float]
    b: float = 0.0

    def __post_init__(self, scale: float):
        self.b = self.a * scale


@dataclass
class Weighted:
    values: torch.Tensor
    weight: "torch.Tensor | None" = None

    def total(self) -> torch.Tensor:
        weight = self.weight
        return self.values.sum() if weight is None else (self.values * weight).sum()


@dataclass
class Listed:
    values: List[int] = field(default_factory=list)  # noqa: UP006


def square(x: float):
    return Point(x).square() + Point(x, y=1.0).square()


def order(a: int, b: int, c: Optional[int]):  # noqa: UP045
    p, q = Version(a, c, "one"), Version(b, c, "two")
    return p == q, p < q, p <= q, p > q, p >= q


def absent(a: int, b: int):
    return Version(a) == Version(b), Version(a) == Version(a, 1), Version(a).name


def after(a: int):
    return Scaled(a, 2.5).b


def shown(a: int):
    return str(Version(a, 3))


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (square, (3.0,)),
    (order, (1, 2, 5)),
    (order, (2, 2, 5)),
    (order, (3, 2, None)),
    (absent, (1, 1)),
    (after, (3,)),
]


@pytest.mark.parametrize(("function", "given"), CALLS, ids=lambda v: getattr(v, "__name__", str(v)))
def test_scripts_give_what_python_gives(function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    assert torch.jit.script(function)(*given) == function(*given)


def test_objects_come_from_python_and_go_back() -> None:
    def double(p: Point) -> Point:
        return Point(2 * p.x, p.y)

    found = torch.jit.script(double)(Point(1.5, 4.0))
    assert (found.x, found.y) == (3.0, 4.0)


def test_a_module_keeps_tensors_in_one() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor):
            return Weighted(x).total() + Weighted(x, x).total()

    assert torch.jit.script(Net())(torch.tensor([1.0, 2.0])).item() == 8.0


def test_a_class_is_scripted_by_itself() -> None:
    made = torch.jit.script(Point)
    assert made(1.0).square() == 5.0 and dataclasses.is_dataclass(made)


def test_factories_are_refused() -> None:
    def count() -> int:
        return len(Listed().values)

    with pytest.raises(NotImplementedError, match="Default factory initializers are not supported"):
        torch.jit.script(count)
