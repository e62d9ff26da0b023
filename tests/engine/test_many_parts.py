"""Views in many parts, of lengths that were not met before: NumPy says where they lie, calculus what their gradients are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._engine.indexing import view

LAYOUTS = [
    ((37,), (1,)),
    ((2, 71), (71, 1)),
    ((40, 1, 3), (3, 77, 1)),
    ((1, 33, 2), (5, 2, 9)),
    ((18, 3), (0, 1)),
    ((5, 4), (4, 1)),
]
CUTS = {
    "unbind": (lambda x, d: x.unbind(d), lambda a, d: [a.take(k, d) for k in range(a.shape[d])]),
    "split": (lambda x, d: x.split(2, d), lambda a, d: np.split(a, range(2, a.shape[d], 2), d)),
    "split_sizes": (
        lambda x, d: x.split([1, 0] * (x.shape[d] - 1) + [1], d),
        lambda a, d: np.split(a, list(itertools.chain(*((k, k) for k in range(1, a.shape[d])))), d),
    ),
    "tensor_split": (lambda x, d: x.tensor_split(23, d), lambda a, d: np.array_split(a, 23, d)),
    "tensor_split_at": (lambda x, d: x.tensor_split([1, 3] * 12, d), lambda a, d: np.split(a, [1, 3] * 12, d)),
}  # fmt: skip


def _places(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return torch.arange(4000.0, dtype=torch.float64).as_strided(shape, strides, 3)


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize(("shape", "strides"), LAYOUTS)
@pytest.mark.parametrize("recorded", [False, True])
def test_parts_lie_where_numpy_has_them(name, shape, strides, recorded):
    cut, expected = CUTS[name]
    for dim in range(len(shape)):
        x = _places(shape, strides).detach().requires_grad_(recorded)
        dropped = (*strides[:dim], *strides[dim + 1 :])
        parts, arrays = cut(x, dim), expected(x.detach().numpy(), dim)
        assert len(parts) == len(arrays)
        for number, (part, array) in enumerate(zip(parts, arrays, strict=True)):
            np.testing.assert_array_equal(part.detach().numpy(), array)
            assert part.stride() == (dropped if name == "unbind" else strides)
            assert part._base is x and part.requires_grad is recorded and part._version == x._version
            if part.numel():
                assert part.storage_offset() == array.flat[0]
            if recorded:
                assert part.output_nr == (0 if name.startswith("tensor") else number)


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("used", [1, 3])
def test_gradients_of_parts_of_a_new_length(name, used):
    for length in (9, 23, 61, 64, 65, 130):
        x = torch.linspace(0.1, 2, length, dtype=torch.float64).requires_grad_()
        parts = CUTS[name][0](x, 0)
        kept = [(k, part) for k, part in enumerate(parts) if k % used == 0 and part.numel()]
        total = sum((part.sin() * (k + 1)).sum() for k, part in kept)
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), x)
        weight = np.zeros(length)
        for k, part in kept:
            weight[part.storage_offset() : part.storage_offset() + part.numel()] += k + 1
        a = x.detach().numpy()
        np.testing.assert_allclose(first.detach().numpy(), weight * np.cos(a), rtol=1e-12)
        np.testing.assert_allclose(second.numpy(), -2 * weight**2 * np.cos(a) * np.sin(a), rtol=1e-12)


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("recorded", [False, True])
def test_many_parts_are_not_traced(name, recorded, monkeypatch):
    """Each new length would cost a graph with nodes for each part."""

    def traced(*_: Any, **__: Any) -> Any:
        raise AssertionError("traced")

    monkeypatch.setattr(view, "trace_operator", traced)
    monkeypatch.setattr(view, "differentiate", traced)
    for length in range(211, 216):
        x = torch.zeros(length).requires_grad_(recorded)
        assert len(CUTS[name][0](x, 0)) == len(CUTS[name][1](np.zeros(length), 0))


def test_changes_of_parts():
    x = torch.zeros(77)
    parts = x.unbind()
    parts[70].add_(3)
    assert x[70] == 3 and x._version == parts[0]._version == 1
    recorded = torch.zeros(78, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="multiple views"):
        recorded.unbind()[5].add_(1)
    with torch.no_grad():
        recorded.unbind()[5].add_(1)
    assert recorded[5] == 1
    pieces = (torch.zeros(79, requires_grad=True) * 1).tensor_split(40)
    assert pieces[3].mul_(2).grad_fn is not None


def test_parts_in_inference_mode_and_on_meta():
    with torch.inference_mode():
        assert all(part.is_inference() for part in torch.zeros(81).unbind())
    parts = torch.empty(83, 2, device="meta").unbind()
    assert len(parts) == 83 and parts[82].shape == (2,) and parts[82].device.type == "meta"


def test_parts_of_subclasses_and_under_modes():
    class Named(torch.Tensor):
        pass

    assert {type(part) for part in torch.zeros(85).as_subclass(Named).unbind()} == {Named}
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        torch.zeros(87).unbind()
    assert seen[-1] == "aten.unbind.int"


def test_parts_under_transforms():
    x = torch.linspace(0.5, 2, 3 * 41, dtype=torch.float64).view(3, 41)

    def f(row: Any) -> Any:
        return sum(part * part * k for k, part in enumerate(row.unbind()))

    expected = (x.numpy() ** 2 * np.arange(41)).sum(1)
    np.testing.assert_allclose(torch.func.vmap(f)(x).numpy(), expected)
    np.testing.assert_allclose(torch.func.grad(f)(x[0]).numpy(), 2 * x[0].numpy() * np.arange(41))
    np.testing.assert_allclose(torch.compile(f)(x[1]).numpy(), expected[1])
    tangent = torch.func.jvp(f, (x[0],), (torch.ones(41, dtype=torch.float64),))[1]
    np.testing.assert_allclose(tangent.numpy(), (2 * x[0].numpy() * np.arange(41)).sum())
