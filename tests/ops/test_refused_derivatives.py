"""Operators whose derivative PyTorch refuses: forward works, backward names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch

CALLS: dict[str, Callable[[Any], Any]] = {
    "heaviside": lambda x: torch.heaviside(x, torch.ones(())), "floor_divide": lambda x: x // 2,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_backward_refuses(name: str) -> None:
    x = torch.tensor([1.5, -2.0, 0.0], requires_grad=True)
    out = CALLS[name](x)
    assert out.requires_grad
    with pytest.raises(RuntimeError, match=f"derivative for aten::{name} is not implemented"):
        out.sum().backward()


UNDERIVED = """t.igamma(x, y) | x.igamma(y) | (x * 1).igamma_(y) | t.igammac(x, y) | t.special.zeta(x, y) | x // y | (x * 1).floor_divide_(y) | t.heaviside(x, y)
t.linalg.ldl_factor(x.diag())[0] | t.linalg.ldl_solve(t.eye(2).double(), t.tensor([1, 2], dtype=t.int32), x[:, None]) | t.geqrf(x[None])[0] | x.nextafter(y)
t.func.jvp(lambda a, b: a // b, (x, y), (x, y)) | t.func.jvp(t.heaviside, (x, y), (x, y)) | t.func.jvp(t.igamma, (x, y), (x, y))
t.func.vmap(t.func.grad(lambda a, b: (a // b).sum()))(x, y) | t.func.grad(lambda a, b: t.func.vmap(t.heaviside)(a, b).sum())(x, y) | t.func.vmap(t.func.grad(t.igamma))(x, y)"""


@pytest.mark.oracle
@pytest.mark.parametrize("text", [t.strip() for row in UNDERIVED.splitlines() for t in row.split(" | ")])
def test_nodes_and_classes_as_in_pytorch(text: str) -> None:
    def ends(library: Any) -> tuple[str, ...]:
        x, y = (library.tensor(v, dtype=library.float64, requires_grad=True) for v in ([1.5, 2.5], [1.25, 2.25]))
        out, node = None, ""
        try:
            out = eval(text, {"t": library, "x": x, "y": y})  # noqa: S307
            node = type(out.grad_fn).__name__
            out.sum().backward()
        except (RuntimeError, NotImplementedError) as error:
            return node, "NotImplementedError" if isinstance(error, NotImplementedError) else "RuntimeError"
        return node, "ok"

    assert ends(torch) == ends(pytest.importorskip("torch"))


def test_in_place_on_a_view() -> None:
    x = torch.ones(4, requires_grad=True)
    y = x * 3
    y[:2].floor_divide_(2.0)
    assert y.tolist() == [1.0, 1.0, 3.0, 3.0]
    with pytest.raises(RuntimeError, match="derivative for aten::floor_divide_ is not implemented"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.floor_divide_(2.0)
    with torch.no_grad():
        x.floor_divide_(2.0)
    assert x.tolist() == [0.0] * 4 and x.requires_grad


def test_whole_numbers_and_no_dims() -> None:
    i = torch.tensor([1, 2, 3])
    assert torch.nn.functional.l1_loss(i, i + 1, reduction="sum").item() == 3
    assert torch.nn.functional.l1_loss(i, i + 1, reduction="none").dtype is torch.int64
    with pytest.raises(RuntimeError, match=r"mean\(\): could not infer output dtype.*Got: Long"):
        torch.nn.functional.l1_loss(i, i + 1)
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.tensor(3).repeat_interleave(2, dim=0)
    with pytest.raises(IndexError, match="tensor has no dimensions"):
        torch.tensor(3).repeat_interleave(torch.tensor([2]), dim=0)
    assert torch.tensor(3).repeat_interleave(2).tolist() == [3, 3]
