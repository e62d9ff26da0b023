"""A gradient belongs to one tensor: whoever else can see its memory would see `.grad` grow."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import rushlight as torch


def leaf(*shape: int) -> Any:
    return torch.ones(*shape, requires_grad=True)


def memory(x: Any) -> range:
    return range(x.untyped_storage().data_ptr(), x.untyped_storage().data_ptr() + max(1, x.untyped_storage().nbytes()))


def apart(*tensors: Any) -> bool:
    return all(a.start >= b.stop or b.start >= a.stop for a, b in itertools.combinations(map(memory, tensors), 2))


PATTERNS: dict[str, Any] = {
    "sum of two": lambda a, b: a + b,
    "sum of views": lambda a, b: a.view(-1) + b.view(-1),
    "transposed": lambda a, b: a.t() + b,
    "same twice": lambda a, b: a + a + b,
    "difference": lambda a, b: a - b,
    "through clone": lambda a, b: a.clone() + b.detach() + b.clone(),
    "through where": lambda a, b: torch.where(a > 0, a, b) + b,
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "expanded": lambda a, b: a.unsqueeze(0).expand(3, 2, 2) + b,
    "reshape chain": lambda a, b: a.reshape(4).view(2, 2).unsqueeze(0).squeeze(0) + b.contiguous(),
    "cast": lambda a, b: a.double().float() + b.to(torch.float32),
    "index": lambda a, b: a[:] + b[...],
    "identity function": lambda a, b: Same.apply(a) + Same.apply(b),
    "split": lambda a, b: torch.cat(a.split(1)) + b,
    "in place": lambda a, b: (a * 1).add_(b),
    "buffer": lambda a, b: filled(a, b),
}


class Same(torch.autograd.Function):
    """Hands the very gradient on."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def filled(a: Any, b: Any) -> Any:
    out = torch.zeros(2, 2)
    out[0] = a[0]
    out[1] = b[1]
    return out


@pytest.mark.parametrize("name", PATTERNS)
def test_gradients_do_not_share_memory(name: str) -> None:
    a, b = leaf(2, 2), leaf(2, 2)
    out = PATTERNS[name](a, b)
    seed = torch.ones_like(out.detach())
    out.backward(seed)
    assert apart(a.grad, b.grad, seed)
    before = b.grad.clone(), seed.clone()
    a.grad.add_(100)
    assert torch.equal(b.grad, before[0])
    assert torch.equal(seed, before[1])


@pytest.mark.parametrize("name", PATTERNS)
def test_results_of_grad_may_be_changed(name: str) -> None:
    a, b = leaf(2, 2), leaf(2, 2)
    out = PATTERNS[name](a, b)
    seed = torch.ones_like(out.detach())
    first = torch.autograd.grad(out, (a, b), seed, retain_graph=True)
    values = [g.clone() for g in first]
    again = torch.autograd.grad(out, (a, b), seed)
    assert all(torch.equal(g, v) for g, v in zip(again, values, strict=True))


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("where", ["leaf hook", "result hook", "retained", "post hook", "node hook", "node pre-hook"])
def test_a_gradient_somebody_holds_does_not_grow(name: str, where: str) -> None:
    a, b = leaf(2, 2), leaf(2, 2)
    held: list[Any] = []
    out = PATTERNS[name](a, b)
    if where == "leaf hook":
        a.register_hook(held.append)
    elif where == "result hook":
        out.register_hook(held.append)
    elif where == "retained":
        out.retain_grad()
    elif where == "post hook":
        a.register_post_accumulate_grad_hook(lambda p: held.append(p.grad.clone()))
    elif where == "node hook":
        out.grad_fn.register_hook(lambda ins, outs: held.extend(g for g in (*ins, *outs) if g is not None))
    else:
        out.grad_fn.register_prehook(lambda outs: held.extend(outs))
    out.backward(torch.ones_like(out.detach()))
    if where == "retained":
        held.append(out.grad)
    assert held
    first = list(held)  # the hooks run once more below
    before = [g.clone() for g in first]
    for p in (a, b):
        p.grad.mul_(7)
    (a + b).sum().backward()
    assert all(torch.equal(g, v) for g, v in zip(first, before, strict=True))


def test_the_given_gradient_is_copied_when_it_goes_straight_to_a_leaf() -> None:
    seed = torch.ones(3)
    for make in (lambda x: x, lambda x: x.view(3), lambda x: x.view(1, 3).view(3), lambda x: x + 0):
        x = leaf(3)
        make(x).backward(seed)
        x.grad.add_(5)
        assert seed.tolist() == [1, 1, 1]


def test_the_given_gradient_may_be_a_temporary() -> None:
    x = leaf(3)
    x.backward(torch.full((3,), 2.0))
    assert x.grad.tolist() == [2, 2, 2]
    x.backward(torch.full((3,), 2.0))
    assert x.grad.tolist() == [4, 4, 4]


def test_a_view_of_the_given_gradient_is_not_taken_over() -> None:
    whole = torch.ones(2, 3)
    x = leaf(3)
    x.backward(whole[1])
    x.grad.add_(5)
    assert whole.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_numpy_view_of_the_given_gradient() -> None:
    array = torch.ones(3).numpy()
    x = leaf(3)
    x.backward(torch.from_numpy(array))
    x.grad.add_(5)
    assert array.tolist() == [1, 1, 1]


def test_an_expanded_gradient_becomes_dense() -> None:
    x = leaf(3)
    x.sum().backward()
    x.grad[0] = 9.0
    assert x.grad.tolist() == [9, 1, 1]
    assert x.grad.is_contiguous()


def test_accumulation_is_in_place() -> None:
    x = leaf(3)
    (x * 2).sum().backward()
    place = x.grad.data_ptr()
    (x * 2).sum().backward()
    assert x.grad.data_ptr() == place
    assert x.grad._version == 1


def test_a_function_that_keeps_its_gradient() -> None:
    kept: list[Any] = []

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            found = grad * 2
            kept.append(found)
            return found

    x = leaf(2)
    Keeps.apply(x).sum().backward()
    x.grad.add_(1)
    assert kept[0].tolist() == [2, 2]


def test_two_edges_with_the_same_gradient_object() -> None:
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            one = grad * 3
            return one, one

    x, y = leaf(2), leaf(2)
    Both.apply(x, y).sum().backward()
    x.grad.add_(1)
    assert y.grad.tolist() == [3, 3]


def test_sum_buffers_do_not_write_into_what_others_see() -> None:
    x, seen = leaf(2), []
    y = x * 1
    parts = [y + 0 for _ in range(4)]
    parts[0].register_hook(seen.append)
    total = parts[0] + parts[1] + parts[2] + parts[3]
    total.sum().backward()
    assert seen[0].tolist() == [1, 1]
    assert x.grad.tolist() == [4, 4]


def test_what_a_free_gradient_looks_like_is_measured() -> None:
    from rushlight._engine.autograd import engine

    engine._LIMITS.clear()
    x = leaf(3)
    (x * 2).sum().backward()
    first = list(engine._LIMITS)
    assert first[0] > 0 and first[1] > 0
    engine._LIMITS.clear()
    y = leaf(4)
    y.backward(torch.ones(4))
    assert engine._LIMITS == first


def test_a_free_gradient_is_taken_over_without_a_copy() -> None:
    places = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            found = grad * 2
            places.append(found.data_ptr())
            return found

    x = leaf(3)
    Watched.apply(x).sum().backward()
    assert x.grad.data_ptr() == places[0]
