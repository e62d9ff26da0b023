"""Kinds of tensor: who is asked, in which order, and what happens where nobody answers."""

from __future__ import annotations

import pytest

import rushlight as torch
from rushlight._engine.dispatch_types.base import DispatchType, make_dispatch_tensor


class Doubled(DispatchType):
    """Stands for twice what it holds."""

    backend = "Doubled"


class Outer(DispatchType):
    """Asked before `Doubled`."""

    backend = "Outer"
    rank = 1


def doubled(inner: torch.Tensor) -> Doubled:
    made = make_dispatch_tensor(Doubled, inner._spec)
    made.inner = inner
    return made


def plain(x: object) -> object:
    return x.inner * 2 if isinstance(x, Doubled) else x


@Doubled.implements("add", "mul")
def _(function, input, other, **kwargs):
    return function(plain(input), plain(other), **kwargs)


@Doubled.implements("add_")
def _(function, input, other, **kwargs):
    input.inner = input.inner + plain(other) / 2
    return input


@Outer.implements("mul")
def _(function, input, other):
    return "outer" if not isinstance(other, Doubled) else NotImplemented


def test_operators_ask_a_kind_in_every_form() -> None:
    x = torch.tensor([1.0, 2.0])
    d = doubled(x)
    for made in (d + x, x + d, torch.add(x, d), x.add(d), d.add(x, alpha=1)):
        assert made.tolist() == [3.0, 6.0]
    assert d.add_(x) is d and (d + 0).tolist() == [3.0, 6.0]


def test_facts_come_from_the_spec_and_memory_does_not_exist() -> None:
    d = doubled(torch.ones(2, 3))
    assert (
        d.shape == (2, 3)
        and d.size(1) == 3
        and d.dim() == 2
        and d.numel() == 6
        and len(d) == 2
        and isinstance(d, torch.Tensor)
    )
    for call in (
        lambda: torch.exp(d),
        lambda: d.tolist(),
        lambda: d.T,
        lambda: d.exp_(),
        lambda: d.normal_(),
        lambda: d.data_ptr(),
    ):
        with pytest.raises(
            NotImplementedError, match=r"Could not run 'aten::\w+' with arguments from the 'Doubled' backend"
        ):
            call()


def test_composites_run_their_body_on_the_kind() -> None:
    d = doubled(torch.ones(2))

    @Doubled.implements("stack")
    def _(function, tensors, dim=0):
        return function([plain(t) for t in tensors], dim)

    assert torch.vstack([torch.ones(2), torch.ones(2)]).shape == (2, 2)
    assert torch.stack([d, torch.ones(2)]).tolist() == [[2.0, 2.0], [1.0, 1.0]]


def test_higher_ranks_are_asked_first_and_may_decline() -> None:
    outer, d = make_dispatch_tensor(Outer, torch.ones(2)._spec), doubled(torch.ones(2))
    assert outer * torch.ones(2) == "outer" and torch.mul(torch.ones(2), outer) == "outer"
    with pytest.raises(NotImplementedError, match="from the 'Outer' backend"):
        outer + d  # has no handler for it
    assert Doubled.answer(torch.mul, (torch.ones(2), d), {}).tolist() == [2.0, 2.0]
    assert torch.mul(d, outer) == "outer"


def test_what_one_kind_declines_the_next_answers() -> None:
    outer, d = make_dispatch_tensor(Outer, torch.ones(2)._spec), doubled(torch.ones(2))

    @Doubled.implements("dot")
    def _(function, input, other):
        return "doubled"

    @Outer.implements("dot")
    def _(function, input, other):
        return NotImplemented

    assert torch.dot(outer, d) == "doubled"
    with pytest.raises(TypeError, match="no kind of tensor among the arguments"):
        torch.dot(outer, torch.ones(2))


def test_the_users_classes_come_before_kinds() -> None:
    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "mine", [t.__name__ for t in types]

    mine = torch.ones(2).as_subclass(Mine)
    assert torch.add(doubled(torch.ones(2)), mine) == ("mine", ["Mine"])
    assert not torch.overrides.has_torch_function((doubled(torch.ones(2)),))
