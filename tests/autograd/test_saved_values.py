"""What nodes show of their call, as PyTorch's do; `tools/sweeps/saved_values.py` asks it of all of PyTorch's samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "sweeps"
X = torch.arange(12.0).reshape(3, 4).requires_grad_()
F = torch.nn.functional
LAST = 2**64 - 1  # PyTorch shows whole numbers without their sign

# A call, and what PyTorch 2.13 says of its node.
FACTS: list[tuple[Callable[[], Any], dict[str, Any]]] = [
    (lambda: X.view(2, 6), {"self_sym_sizes": (3, 4)}),
    (lambda: X.transpose(0, -1), {"dim0": 0, "dim1": LAST}),
    (lambda: X.permute(1, 0), {"dims": (1, 0)}),
    (lambda: X.movedim(1, 0), {"dims": (1, 0)}),
    (lambda: X.unsqueeze(-1), {"dim": LAST}),
    (lambda: X[:, None].squeeze(1), {"dim": 1, "self_sym_sizes": (3, 1, 4)}),
    (lambda: X.select(1, -1), {"dim": 1, "index": LAST, "self_sym_sizes": (3, 4)}),
    (lambda: X[:, 1:3], {"dim": 1, "step": 1, "self_sym_sizes": (3, 4)}),
    (lambda: X[1, 1:3], {"dim": 0, "self_sym_sizes": (4,)}),
    (lambda: X.narrow(1, 1, 2), {"dim": 1, "start": 1, "end": 3, "step": 1}),
    (lambda: X.chunk(2, 1)[0], {"dim": 1, "split_size": 2}),
    (lambda: X.split([1, 2])[1], {"dim": 0, "split_sizes": (1, 2)}),
    (lambda: X.unbind(-1)[0], {"dim": LAST}),
    (lambda: X.diagonal(1), {"offset": 1, "dim1": 0, "dim2": 1, "self_sym_sizes": (3, 4)}),
    (lambda: X[:1].expand(5, 4), {"self_sym_sizes": (1, 4)}),
    (lambda: X.unfold(1, 2, 2), {"dimension": 1, "size": 2, "step": 2}),
    (lambda: X.as_strided((2, 2), (4, 1), 1), {"size": (2, 2), "stride": (4, 1), "storage_offset": 1}),
    (lambda: X.flip(0, 1), {"dims": (0, 1)}),
    (lambda: X.repeat(2, 1), {"repeats": (2, 1), "self_sym_sizes": (3, 4)}),
    (lambda: torch.hstack([X, X]), {"dim": 1}),
    (lambda: X.max(1).values, {"dim": 1, "indices": [3, 3, 3], "keepdim": False}),
    (lambda: X.sort(-1, descending=True)[0], {"dim": LAST, "indices": [[3, 2, 1, 0]] * 3}),
    (lambda: X[:, [0, 2]], {"indices": (None, [0, 2]), "self_sym_sizes": (3, 4)}),
    (lambda: X.var(correction=2), {"correction": 2}),
    (lambda: X * 2, {"other": 2, "self": None}),
    (lambda: X.square(), {"exponent": 2}),
    (lambda: F.selu(X), {"input_scale": 1, "alpha": 1.6732632423543772}),
    (lambda: X @ X.detach().t(), {"self": None, "mat2": X.detach().t().tolist(), "mat2_sym_sizes": (4, 3)}),
    (lambda: F.linear(X, X), {"mat2": X.detach().t().tolist(), "mat2_sym_strides": (1, 4)}),
    (
        lambda: F.conv2d(torch.ones(1, 1, 4, 4), torch.ones(2, 1, 3, 3, requires_grad=True), padding="same"),
        {"padding": (1, 1), "stride": (1, 1), "transposed": False, "bias_sym_sizes_opt": (0,)},
    ),
    (lambda: F.layer_norm(X, (4,)), {"result1": [[1.5], [5.5], [9.5]], "normalized_shape": (4,)}),
    (lambda: F.group_norm(X[None], 1), {"N": 1, "C": 3, "HxW": 4, "group": 1}),
    (
        lambda: torch.linalg.cholesky_ex(torch.tensor([[4.0, 2.0], [2.0, 5.0]], requires_grad=True), upper=True)[0],
        {"upper": True, "L": [[2, 1], [0, 2]]},
    ),
    (lambda: F.interpolate(X[None], 2), {"output_size": (2,), "self_sym_sizes": (1, 3, 4)}),
]


def plain(value: Any) -> Any:
    """Tensors as lists."""
    return (
        tuple(map(plain, value))
        if isinstance(value, tuple)
        else value.tolist()
        if isinstance(value, torch.Tensor)
        else value
    )


@pytest.mark.parametrize("number", range(len(FACTS)))
def test_nodes_show_their_call(number: int) -> None:
    call, facts = FACTS[number]
    node = call().grad_fn
    assert {name: plain(getattr(node, f"_saved_{name}")) for name in facts} == facts


def test_a_new_size_has_facts_of_its_own() -> None:
    for n in range(2, 9):
        node = torch.ones(n, 3, requires_grad=True).narrow(0, 1, n - 1).grad_fn
        assert (node._saved_start, node._saved_end, node._saved_self_sym_sizes) == (1, n, (n, 3))


def test_what_is_not_held_says_so() -> None:
    node = X.take(torch.tensor([0, 5])).grad_fn
    with pytest.raises(AttributeError, match="does not hold '_saved_self'"):
        node._saved_self
    with pytest.raises(AttributeError, match="has no attribute '_saved_self'"):
        (X + X).grad_fn._saved_self  # nor has PyTorch's
    names = [n for n in dir(node) if "_saved_" in n]
    assert "_saved_self" not in names and all(hasattr(node, n) for n in names)
    assert all(hasattr(X.exp().grad_fn, n) for n in dir(X.exp().grad_fn))


def test_released_tensors_are_refused_and_sizes_are_not() -> None:
    out = X.max(1).values
    out.sum().backward()
    assert (out.grad_fn._saved_dim, out.grad_fn._saved_self_sym_sizes) == (1, (3, 4))
    with pytest.raises(RuntimeError, match="second time"):
        out.grad_fn._saved_indices


@pytest.mark.parametrize(
    ("follow", "twice"),
    [
        (lambda t, x: t.lerp(x, 0.25), 0.5),
        (lambda t, x: t.lerp_(x, 0.25), 0.5),
        (lambda t, x: t.mul_(0.75).add_(x, alpha=0.25), 0.5),
        (lambda t, x: torch.sub(t, x, alpha=3), -6.0),
        (lambda t, x: t.addcdiv(x, torch.full((3,), 2.0), value=4), None),
    ],
)
def test_nodes_that_keep_numbers_alone_run_again(follow: Callable[..., Any], twice: float | None) -> None:
    """Target networks that follow others outside of `no_grad`: what is kept of a call must be freed only where it is a tensor."""
    x = torch.ones(3, requires_grad=True)
    out = follow(torch.zeros(3), x)
    out.sum().backward()
    if twice is None:
        with pytest.raises(RuntimeError, match="second time"):
            out.sum().backward()
    else:
        out.sum().backward()
        assert x.grad.tolist() == [twice] * 3


def test_handles_of_lists() -> None:
    node = X[:, [0, 2]].grad_fn
    first, second = node._raw_saved_indices
    assert first is None
    second.register_hooks(lambda t: t, lambda t: t)
    assert plain(node._saved_indices) == (None, [0, 2])


# What differs for a reason: signs and phases of vectors, the order in which composites call, numbers that became floats on the way, masks that are
# kept as places, paddings of one number for all dims.
DIFFER = {
    "AddmmBackward0", "AvgPool2DBackward0", "ConstantPadNdBackward0", "CumprodBackward0", "CumsumBackward0", "DivBackward0", "FftC2RBackward0",
    "IndexBackward0", "IndexPutBackward0", "LinalgEigBackward0", "LinalgEighBackward0", "LinalgSvdBackward0", "LinalgVectorNormBackward0",
    "LogSoftmaxBackward0", "MmBackward0", "MulBackward0", "SelectBackward0", "SliceBackward0", "SoftmaxBackward0", "ViewBackward0",
}  # fmt: skip
MISSING = {"UnsafeSplitBackward0", "ToSparseBackward0"}
NOT_NEEDED = {
    "LinalgLuSolveBackward0",
    "MulBackward0",
    "MultiMarginLossBackward0",
    "PreluKernelBackward0",
}  # here, where PyTorch keeps it all the same


@pytest.mark.oracle
def test_nodes_show_what_pytorchs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    other = pytest.importorskip("torch")
    pytest.importorskip("expecttest")  # PyTorch's sample inputs need it
    monkeypatch.syspath_prepend(str(TOOLS))
    import saved_values as sweep

    allowed = {
        "same": None,
        "not held": None,
        "another node": None,
        "other": DIFFER,
        "missing": MISSING,
        "None here": NOT_NEEDED,
    }
    wrong, equal = set(), 0
    for info in sweep.op_db[::4]:
        if (
            sweep.UNDEFINED.search(info.name)
            or not info.supports_autograd
            or sweep.DTYPE not in info.supported_backward_dtypes("cpu")
        ):
            continue
        other.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for node, attribute, kind, text in sweep.compare(
                info, next(iter(info.sample_inputs("cpu", sweep.DTYPE, requires_grad=True)))
            ):
                equal += kind == "same"
                known = allowed.get(kind, frozenset())
                if known is not None and node not in known:
                    wrong.add(f"{info.name}: {kind} {node}.{attribute} {text}")
    assert not wrong and equal > 150, "\n".join(sorted(wrong))


@pytest.mark.oracle
def test_names_are_those_of_this_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("expecttest")
    monkeypatch.syspath_prepend(str(TOOLS))
    import saved_values as sweep

    kept = sweep.OUT.read_text(encoding="utf-8")
    monkeypatch.setattr(sweep, "OUT", tmp_path / "names.txt")
    sweep.write_names()
    assert (tmp_path / "names.txt").read_text(encoding="utf-8") == kept
