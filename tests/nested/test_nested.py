"""Nested tensors against their items, one by one."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

import rushlight as torch

D = torch.float64
LAYOUTS = ("strided", "jagged")


def parts(*sizes: int) -> list[Any]:
    return [(torch.arange(3.0 * n, dtype=D) + n).sin().reshape(n, 3) for n in sizes]


def make(given: list[Any], layout: str, **options: Any) -> Any:
    return torch.nested.nested_tensor(given, layout=getattr(torch, layout), **options)


def same(made: Any, expected: Any) -> None:
    made = made.unbind() if isinstance(made, torch.Tensor) else made
    assert len(made) == len(expected)
    for a, b in zip(made, expected, strict=True):
        assert a.shape == b.shape and a.dtype is b.dtype and torch.allclose(a, b, equal_nan=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_items_come_back(layout: str) -> None:
    given = parts(2, 4, 1)
    n = make(given, layout)
    assert (
        n.is_nested
        and n.layout is getattr(torch, layout)
        and n.dim() == 3
        and n.numel() == 21
        and n.size(0) == 3
        and n.size(-1) == 3
    )
    for other in (
        n,
        n.clone(),
        n.detach(),
        copy.deepcopy(n),
        pickle.loads(pickle.dumps(n)),
        n.float().double(),
        n.contiguous(),
    ):
        same(other, given)
    same([n[1], n.select(0, 2)], given[1:])
    padded = n.to_padded_tensor(-1.0)
    assert padded.shape == (3, 4, 3) and (padded[0, 2:] == -1).all() and torch.equal(padded[1], given[1])


def test_jagged_parts() -> None:
    n = make(parts(2, 4, 1), "jagged")
    assert n.offsets().tolist() == [0, 2, 6, 7] and n.lengths() is None and n.values().shape == (7, 3)
    assert n.shape[0] == 3 and n.shape[1] == n.shape[1] and n.shape[1] != make(parts(2, 4, 1), "jagged").shape[1]
    assert str(n.shape).startswith("torch.Size([3, j") and (n * 2).shape == n.shape
    held = torch.nested.nested_tensor_from_jagged(torch.arange(6.0), torch.tensor([0, 3, 6]), torch.tensor([2, 1]))
    same(held, [torch.arange(2.0), torch.tensor([3.0])])
    same(held.contiguous() + 1, [torch.arange(2.0) + 1, torch.tensor([4.0])])
    narrowed = torch.nested.narrow(
        torch.arange(8.0).reshape(2, 4), 1, torch.tensor([1, 0]), torch.tensor([2, 4]), layout=torch.jagged
    )
    same(narrowed, [torch.tensor([1.0, 2.0]), torch.arange(4.0, 8.0)])
    with pytest.raises(RuntimeError, match="not supported for nested tensors with holes"):
        narrowed.to_padded_tensor(0.0)


def test_the_printed_forms() -> None:
    n = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], requires_grad=True)
    assert (
        repr(n)
        == "nested_tensor([\n  tensor([1., 1.], requires_grad=True),\n  tensor([1.], requires_grad=True)\n], requires_grad=True)"
    )
    j = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged)
    assert repr(j) == f"NestedTensor(size=(2, {j.shape[1]}), offsets=tensor([0, 2, 3]), contiguous=True)"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operators_item_by_item(layout: str) -> None:
    given = parts(2, 4, 1)
    n, weight = make(given, layout), torch.ones(2, 3, dtype=D)
    F = torch.nn.functional
    cases = {
        "sin": (n.sin(), [t.sin() for t in given]),
        "relu": (n.relu(), [t.relu() for t in given]),
        "sum of two": (n + 2 * n, [3 * t for t in given]),
        "product": (n * n, [t * t for t in given]),
        "quotient": (n / 2, [t / 2 for t in given]),
        "greater": (n > 0.5, [t > 0.5 for t in given]),
        "linear": (F.linear(n, weight), [F.linear(t, weight) for t in given]),
        "softmax": (torch.softmax(n, -1), [torch.softmax(t, -1) for t in given]),
        "ragged softmax": (torch.softmax(n, 1), [torch.softmax(t, 0) for t in given]),
        "layer_norm": (F.layer_norm(n, (3,), *torch.ones(2, 3, dtype=D)), [F.layer_norm(t, (3,)) + 1 for t in given]),
        "transpose": (n.transpose(1, 2), [t.t() for t in given]),
        "unsqueeze": (n.unsqueeze(-1), [t.unsqueeze(-1) for t in given]),
        "cat": (torch.cat([n, n], -1), [torch.cat([t, t], -1) for t in given]),
        "chunk": (n.chunk(3, -1)[1], [t[:, 1:2] for t in given]),
        "sum": (n.sum(-1, keepdim=True), [t.sum(-1, keepdim=True) for t in given]),
        "zeros": (torch.zeros_like(n), [torch.zeros_like(t) for t in given]),
    }
    for name, (made, expected) in cases.items():
        assert made.is_nested and made.layout is n.layout, name
        same(made, expected)
    changed = n.clone()
    assert changed.mul_(2) is changed
    same(changed, [2 * t for t in given])


def test_jagged_reductions() -> None:
    given = parts(2, 4, 1)
    j = make(given, "jagged")
    assert torch.allclose(j.sum(), torch.cat(given).sum()) and torch.allclose(j.mean(), torch.cat(given).mean())
    for name in ("sum", "mean", "amax", "amin", "prod", "argmax", "argmin"):
        assert torch.allclose(getattr(j, name)(1), torch.stack([getattr(t, name)(0) for t in given])), name
        same(getattr(j, name)(2), [getattr(t, name)(1) for t in given])
        same(getattr(j, name)(-1, keepdim=True), [getattr(t, name)(1, keepdim=True) for t in given])
    for name in ("any", "all"):
        assert torch.equal(getattr(j > 0, name)(1), torch.stack([getattr(t > 0, name)(0) for t in given]))
        same(getattr(j > 0, name)(2), [getattr(t > 0, name)(1) for t in given])
        assert torch.equal(getattr(j > 0, name)(), getattr(torch.cat(given) > 0, name)())
    assert j.argmax() == torch.cat(given).argmax()
    for name in ("max", "min"):
        assert torch.allclose(getattr(j, name)(1).values, torch.stack([getattr(t, name)(0).values for t in given]))
        for found, place in zip(getattr(j, name)(2), (0, 1), strict=True):
            same(found, [getattr(t, name)(1)[place] for t in given])
    for name in ("sum", "argmax", "any", "max"):
        with pytest.raises(RuntimeError, match="reducing along the batch dimension"):
            getattr(j, name)(0)


def test_the_same_offsets_are_the_same_ragged_size() -> None:
    values, offsets = torch.arange(10.0).reshape(5, 2), torch.tensor([0, 2, 5])
    a, b = (torch.nested.nested_tensor_from_jagged(values, offsets) for _ in range(2))
    assert a.shape == b.shape and torch.equal((a + b).values(), 2 * values)
    c = torch.nested.nested_tensor_from_jagged(values, a.offsets())
    assert torch.equal((a * c).values(), values * values)
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
        a + torch.nested.nested_tensor_from_jagged(values, offsets.clone())


def test_layouts_of_jagged_tensors() -> None:
    j = make(parts(2, 4), "jagged")
    turned = j.transpose(1, 2)
    assert j.is_contiguous() and not turned.is_contiguous() and turned.contiguous().is_contiguous()
    same(turned.contiguous(), [t.t() for t in parts(2, 4)])
    narrowed = torch.nested.narrow(
        torch.arange(10).reshape(2, 5), 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=torch.jagged
    )
    assert narrowed.offsets().tolist() == [0, 6, 9] and [t.tolist() for t in narrowed.unbind()] == [[0, 1], [6, 7, 8]]
    joined = torch.nested.narrow(
        torch.arange(10).reshape(2, 5), 1, torch.tensor([3, 0]), torch.tensor([2, 4]), layout=torch.jagged
    )
    assert (
        joined.is_contiguous()
        and joined.offsets().tolist() == [0, 2, 6]
        and joined.values().tolist() == [3, 4, 5, 6, 7, 8]
    )
    assert not narrowed.is_contiguous()


def test_plain_operands_beside_jagged_ones() -> None:
    given = parts(2, 4, 1)
    j, row, column = make(given, "jagged"), torch.arange(3.0, dtype=D), torch.arange(3.0, dtype=D).reshape(3, 1, 1)
    same(j * row, [t * row for t in given])
    same(row - j, [row - t for t in given])
    same(j + column, [t + k for k, t in enumerate(given)])
    same(torch.where(j > 0, j, -j), [t.abs() for t in given])
    same(j @ torch.ones(3, 2, dtype=D), [t @ torch.ones(3, 2, dtype=D) for t in given])
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
        j + make(given, "jagged")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention(layout: str) -> None:
    F = torch.nn.functional
    heads = [t.reshape(-1, 1, 3) for t in parts(2, 4)]  # (length, heads, size)
    given = [h.transpose(0, 1) for h in heads]
    n = make(heads, layout).transpose(1, 2) if layout == "jagged" else make(given, layout)
    expected = [
        F.scaled_dot_product_attention(t.unsqueeze(0), t.unsqueeze(0), t.unsqueeze(0), is_causal=True).squeeze(0)
        for t in given
    ]
    same(F.scaled_dot_product_attention(n, n, n, is_causal=True), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients(layout: str) -> None:
    given = [t.requires_grad_() for t in parts(2, 1)]
    weight = torch.ones(2, 3, dtype=D, requires_grad=True)

    def loss(first: Any, second: Any, w: Any) -> Any:
        n = torch.nested.as_nested_tensor([first, second], layout=getattr(torch, layout))
        out = torch.softmax(torch.nn.functional.linear(n * n, w).tanh(), 1)
        return out.to_padded_tensor(0.0)

    assert torch.autograd.gradcheck(loss, (*given, weight))
    n = make(parts(2, 1), layout, requires_grad=True)
    for _ in range(2):
        (n * 3).to_padded_tensor(0.0).sum().backward()
    assert n.grad.is_nested and (n.grad.values() == 6).all()
    (item, _) = n.unbind()
    (grad,) = torch.autograd.grad((item**2).sum(), n)
    same(grad, [2 * item.detach(), torch.zeros(1, 3, dtype=D)])
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        n.mul_(2)


def test_layers_take_batches_of_sequences() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)
    ).double()
    given = parts(2, 5, 1)
    same(model(make(given, "jagged")).detach(), [model(t).detach() for t in given])


def test_what_is_not_there_says_so() -> None:
    n, j = make(parts(2, 1), "strided"), make(parts(2, 1), "jagged")
    for call in (lambda: n.exp(), lambda: n.sum(), lambda: j.var(1), lambda: j.cumsum(1), lambda: torch.linalg.svd(j)):
        with pytest.raises(NotImplementedError, match="'NestedTensorCPU'"):
            call()
    with pytest.raises(RuntimeError, match="doesn't support sizes"):
        n.size()
    with pytest.raises(RuntimeError, match="irregular and does not have a size"):
        n.size(1)
    with pytest.raises(RuntimeError, match="exactly one ragged dim"):
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 4)], layout=torch.jagged)
    for layout in LAYOUTS:
        for plain in (torch.tensor(1.0), torch.ones(3)):
            with pytest.raises(RuntimeError, match=r"Expected tensor argument to have dim\(\) > 1"):
                torch.nested.as_nested_tensor(plain, layout=getattr(torch, layout))
        with pytest.raises(RuntimeError, match="Expected each tensor in given list to be nested"):
            torch.cat([make(parts(2, 1), layout), torch.ones(2, 2, 3, dtype=D)])
    with pytest.raises(RuntimeError, match="same dimension"):
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3)])


def test_backward_where_other_pages_have_been_loaded_first() -> None:
    """Backward of tensors with a class of their own does not take one page of the function transforms for another."""
    program = (
        "import rushlight as torch, rushlight._engine.functorch.random_batches\n"
        "x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], requires_grad=True)\n"
        "y = x * 2\n"
        "y.backward(torch.ones_like(y))\n"
        "print([g.tolist() for g in x.grad.unbind()])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[[2.0, 2.0], [2.0, 2.0, 2.0]]\n", done.stderr
