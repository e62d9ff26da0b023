"""Sizes that vary: conditions on what is computed of them, branches on those that elements tell, layers of images."""

from __future__ import annotations

import contextlib
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


def _narrow(x: Any, a: Any, b: Any) -> Any:
    start, length = a.item(), b.item()
    torch._check(start >= 0)
    torch._check(length >= 0)
    torch._check(start + length <= 6)
    return x.narrow(0, start, length)


def _written(x: Any, a: Any, b: Any) -> Any:
    y = x.clone()
    y[: a.item() : 2] = 0
    y[b.item()] = 7
    return y


@pytest.mark.parametrize(
    ("function", "refuses"),
    [
        (lambda x, a, b: x[: a.item() : 2] * x[: a.item() : 2].shape[0], False),
        (lambda x, a, b: x[a.item() : b.item() : 3], False),
        (lambda x, a, b: torch.zeros(b.item())[::2], True),
        (lambda x, a, b: x[a.item()] + x[-b.item()], True),
        (lambda x, a, b: x.narrow(0, a.item(), 2) + x.narrow(0, -b.item(), 2), True),
        (lambda x, a, b: x.narrow(0, 1, b.item()), True),
        (_narrow, True),
        (_written, True),
        (
            lambda x, a, b: (
                x.select_scatter(torch.ones(10), 0, a.item()) + x.select_scatter(torch.ones(10), 0, -b.item())
            ),
            True,
        ),
    ],
)
def test_places_that_elements_tell(function: Function, refuses: bool) -> None:
    x = torch.arange(60.0).reshape(6, 10)
    program = _program(function, x, torch.tensor(1), torch.tensor(4))
    for form in (program, program.run_decompositions()):
        for a, b in ((1, 4), (2, 3), (0, 2), (4, 2)):
            given = x, torch.tensor(a), torch.tensor(b)
            assert torch.equal(form.module()(*given), function(*given))
        with pytest.raises((RuntimeError, IndexError)) if refuses else contextlib.nullcontext():
            form.module()(x, torch.tensor(2**40), torch.tensor(-(2**40)))


SIZED = {
    "view": lambda x, k: torch.ones(2, k, 4).flatten(1) @ torch.ones(4 * k, 1),
    "view with the rest": lambda x, k: (torch.ones(k, 4).view(2, -1), x.view(k, -1), x.reshape(k, -1)),
    "unflatten": lambda x, k: torch.ones(2, k * 4).unflatten(1, (-1, 4)),
    "linear": lambda x, k: torch.nn.functional.linear(torch.ones(2, k, 10), x),
    "broadcast": lambda x, k: torch.ones(k) + x[x > 57].nonzero()[:, 0],
    "stack": lambda x, k: torch.stack([x[x > 5], x[x > 5]]),
    "topk": lambda x, k: (x.topk(k)[0], x[:, x[0] > 5].kthvalue(2)[1], x[x > 5].median()),
    "search": lambda x, k: (torch.searchsorted(torch.arange(k), torch.tensor([1])), torch.where(x > 5)[0]),
    "made": lambda x, k: (torch.arange(k, 9, 2), torch.linspace(0, k, 4), torch.nonzero_static(x, size=5)),
    "drawn": lambda x, k: torch.multinomial(torch.ones(10), k).sort()[0] * 0,
    "image": lambda x, k: torch.nn.functional.interpolate(x[None, None], size=(k, 2 * k), mode="bilinear"),
    "numbers": lambda x, k: x * torch.sym_sqrt(k) + torch.ones(abs(k - 9)).sum() + torch.sym_ite(k > 3, 2, k),
    "branch": lambda x, k: torch.cond(k > 3, lambda v: v + 1, lambda v: v - 1, (x,)),
    "one of several results": lambda x, k: torch.unique_consecutive(x.floor()) + x[0].sum().item(),
}


@pytest.mark.parametrize("which", SIZED)
def test_operators_take_sizes_that_elements_tell(which: str) -> None:
    def function(x: Any, k: Any) -> Any:
        return SIZED[which](x, k.item())

    x = torch.arange(60.0).reshape(6, 10)
    flat = torch.utils._pytree.tree_leaves
    program = _program(function, x, torch.tensor(2))
    for form in (program, program.run_decompositions()):
        for k in (2, 6, 4) if which != "broadcast" else (2,):
            given = x, torch.tensor(k)
            for found, wanted in zip(flat(form.module()(*given)), flat(function(*given)), strict=True):
                torch.testing.assert_close(found, wanted)


def test_what_operators_take_for_granted_is_checked() -> None:
    program = _program(lambda x, k: torch.ones(k.item()) + x, torch.ones(3), torch.tensor(3))
    for form in (program, program.run_decompositions()):
        with pytest.raises(RuntimeError, match="u. <= 3"):
            form.module()(torch.ones(3), torch.tensor(4))
    with pytest.raises(RuntimeError, match="u0 >= 0|negative"):
        _program(lambda x, k: torch.ones(k.item()), torch.ones(3), torch.tensor(3)).module()(
            torch.ones(3), torch.tensor(-1)
        )


@pytest.mark.parametrize(("size", "wanted"), [((1, 1), (3, 1, 3, 3)), ((3, 2), (18, 1, 6, 3))])
def test_pooling_of_channels_last_takes_any_height(size: tuple[int, int], wanted: tuple[int, ...]) -> None:
    layer = torch.nn.AdaptiveAvgPool2d(size)
    program = _program(layer, torch.randn(2, 3, 14, 14).to(memory_format=torch.channels_last), dim=2)
    for height in (2, 7, 20):
        x = torch.randn(2, 3, height, 14).to(memory_format=torch.channels_last)
        found = program.module()(x)
        assert torch.equal(found, layer(x)) and found.stride() == layer(x).stride() == wanted
