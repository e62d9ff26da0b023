"""Sizes that vary: conditions on what is computed of them, branches on those that elements tell, layers of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._dynamo.exc import UserError
from rushlight.export import Dim

Function = Callable[..., Any]


class Net(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _program(function: Function, *args: Any, dim: int | None = None) -> Any:
    shapes = None if dim is None else ({dim: Dim("n", min=2, max=20)},)
    net = function if isinstance(function, torch.nn.Module) else Net(function)
    if dim is not None and isinstance(net, Net):
        shapes = (shapes,)  # type: ignore[assignment]
    return torch.export.export(net, args, dynamic_shapes=shapes)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1 if x.shape[0] // 3 == 5 else x + 2,
        lambda x: x + 1 if x.shape[0] % 2 == 0 else x + 2,
        lambda x: x * int(x.shape[0] / 3),
        lambda x: x + 1 if x.shape[0] / 3 > 5.2 else x + 2,
    ],
)
def test_conditions_on_computed_sizes_break_a_promise(function: Function) -> None:
    with pytest.raises(UserError, match="Not all values of n"):
        _program(function, torch.ones(16, 4), dim=0)


def test_a_branch_by_a_size_that_elements_tell() -> None:
    def function(a: Any) -> Any:
        found = a.nonzero()
        return torch.cond(found.size(0) > 3, lambda v: v + 1, lambda v: v + 3, (found,)) * 2

    program = _program(function, torch.tensor([1.0, 0, 2, 3, -1]))
    assert [str(r) for r in program.range_constraints.values()] == ["VR[0, 5]"]
    assert [n.op for n in program.graph.nodes if n.target is torch.ops.higher_order.cond] == ["call_function"]
    for a, wanted in (([1.0, 2, 0, 3, 4], [2, 4, 8, 10]), ([0.0, 1, 0, 0, 0], [8])):
        assert program.module()(torch.tensor(a)).flatten().tolist() == wanted


def test_a_size_in_which_branches_differ_is_unknown() -> None:
    def function(x: Any) -> Any:
        y = torch.cond(x.sum() > 0, lambda v: v[:3].clone(), lambda v: v[:1].clone(), (x,))
        return y * y.shape[0]

    program = _program(function, torch.ones(4))
    assert [str(r) for r in program.range_constraints.values()] == ["VR[1, 3]"]
    assert program.module()(torch.ones(4)).tolist() == [3, 3, 3] and program.module()(-torch.ones(4)).tolist() == [-1]
    with pytest.raises(RuntimeError, match="strides"):
        _program(
            lambda x: torch.cond(x.sum() > 0, lambda v: v.t().contiguous().t(), lambda v: v + 1, (x,)), torch.ones(3, 4)
        )


def test_lengths_that_elements_tell_are_bounded_by_sizes() -> None:
    program = _program(lambda x: (x.nonzero(), torch.masked_select(x, x > 0)), torch.ones(16, 5), dim=0)
    assert sorted(str(r) for r in program.range_constraints.values()) == ["VR[0, 100]", "VR[0, 100]", "VR[2, 20]"]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (torch.nn.AdaptiveAvgPool2d(7), (2, 3, 14, 14)),
        (torch.nn.AdaptiveAvgPool2d((None, 2)), (2, 3, 14, 14)),
        (torch.nn.AdaptiveAvgPool1d(3), (2, 3, 14)),
        (torch.nn.Upsample(scale_factor=2, mode="bilinear"), (1, 3, 8, 8)),
    ],
)
def test_layers_of_images_take_any_height(layer: Any, shape: tuple[int, ...]) -> None:
    program = _program(layer, torch.randn(shape), dim=2)
    assert [str(r) for r in program.range_constraints.values()] == ["VR[2, 20]"]
    for height in (2, 3, 7, 20):
        x = torch.randn(*shape[:2], height, *shape[3:])
        assert torch.equal(program.module()(x), layer(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: x[: k.item()],
        lambda x, k: x[k.item() :],
        lambda x, k: x.nonzero()[:3],
        lambda x, k: x.nonzero()[1:],
        lambda x, k: x.nonzero()[1:] - x.nonzero()[:-1],
    ],
)
def test_slices_that_elements_tell_have_lengths_of_their_own(function: Function) -> None:
    def scaled(x: Any, k: Any) -> Any:
        y = function(x, k)
        return y * y.shape[0]

    program = _program(scaled, torch.arange(6.0), torch.tensor(3))
    for x in (torch.arange(6.0), torch.zeros(6), torch.tensor([0.0, 0, 7, 0, 5, 0])):
        for k in (3, 0, 6, 9, -2):
            assert torch.equal(program.module()(x, torch.tensor(k)), scaled(x, torch.tensor(k)))


def test_tensors_of_sizes_follow_them() -> None:
    def function(x: Any) -> Any:
        y = x.clone()
        y[torch.tensor([0, 1])] = x.shape[0]
        return y * torch.tensor([[x.shape[0], 2], [3.5, x.shape[0] + 1]]).flatten() + torch.tensor(x.shape[0])

    program = _program(function, torch.ones(16, 4), dim=0)
    for rows in (16, 5):
        assert torch.equal(program.module()(torch.ones(rows, 4)), function(torch.ones(rows, 4)))


def test_bounds_that_a_program_checks_stay_after_decompositions() -> None:
    def function(x: Any) -> Any:
        found = x.nonzero()
        torch._check(found.shape[0] >= 2)
        return found * 2

    program = _program(function, torch.arange(6.0))
    for form in (program, program.run_decompositions()):
        assert torch.equal(form.module()(torch.arange(6.0)), function(torch.arange(6.0)))
        with pytest.raises(RuntimeError, match="u. >= 2"):
            form.module()(torch.zeros(6))
