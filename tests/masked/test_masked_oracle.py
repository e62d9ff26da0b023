"""Masked tensors beside PyTorch's: printed forms, dtypes, kinds of error, and gradients of the same calls."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import rushlight
import rushlight.masked

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
reference = pytest.importorskip("torch")


class Setting:
    """The same few tensors for either library."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.masked = torch, torch.masked
        self.m = torch.tensor([[True, False, True], [False, False, True]])
        self.d = torch.tensor([[0.25, 0.5, 0.75], [0.3, 0.6, 0.9]])
        self.e = torch.tensor([[0.5, 0.25, 0.125], [0.7, 0.1, 0.4]])
        self.x = self.mt(grad=True)
        self.y = self.masked.masked_tensor(self.e, self.m)
        self.other = self.masked.masked_tensor(self.e, ~self.m)
        self.ints = self.masked.masked_tensor(torch.tensor([[1, 2, 3], [4, 5, 6]]), self.m)
        self.bools = self.masked.masked_tensor(self.d > 0.4, self.m)
        self.coo = self.mt(grad=True).to_sparse_coo()
        self.csr = self.mt(grad=True).to_sparse_csr()

    def mt(self, dtype: Any = None, grad: bool = False) -> Any:
        return self.masked.masked_tensor(self.d if dtype is None else self.d.to(dtype), self.m, requires_grad=grad)


Call = Callable[[Setting], Any]


def described(value: Any) -> Any:
    """What must be the same."""
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    if hasattr(value, "get_mask"):
        return ("masked", repr(value), str(value.dtype), tuple(value.shape), value.requires_grad, str(value.layout))
    if hasattr(value, "requires_grad"):
        shown = value.to_dense() if value.layout is not type(value.detach().to_dense()).layout else value
        return (
            "plain",
            [round(float(v), 4) for v in shown.detach().to_dense().reshape(-1)],
            str(value.dtype),
            tuple(value.shape),
        )
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def outcome(torch: Any, call: Call) -> Any:
    try:
        return described(call(Setting(torch)))
    except Exception as error:  # the class is what is compared
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")


def same(call: Call) -> None:
    wanted, found = outcome(reference, call), outcome(rushlight, call)
    assert found == wanted


def gradient(call: Call, grad: Any = None) -> Call:
    """The gradient of the sum of what `call` gives."""

    def run(s: Setting) -> Any:
        made = call(s)
        (made[0] if isinstance(made, (tuple, list)) else made).sum().backward()
        return s.x.grad

    return run


UNARY = """abs acos acosh angle asin asinh atan atanh ceil conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac i0
isfinite isnan isreal lgamma log log10 log1p log2 logit nan_to_num neg positive rad2deg reciprocal round rsqrt sgn sigmoid sign signbit sin sinc
sinh sqrt square tan tanh trunc absolute arccos arcsin arctan negative""".split()
# Operators whose derivatives PyTorch's MaskedTensor lacks, or which it refuses to differentiate.
NO_GRADIENT = {"abs", "absolute", "angle", "ceil", "floor", "round", "sign", "sgn", "signbit", "isfinite", "isnan", "isreal", "trunc", "fix", "nan_to_num",
               "lgamma", "digamma", "atanh", "logit", "sigmoid", "tanh", "acosh", "frac", "positive", "conj_physical", "i0", "sinc", "exp2"}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    def call(s: Setting) -> Any:
        return getattr(s.torch, name)(s.x)

    same(call)
    if name not in NO_GRADIENT:
        same(gradient(call))


BINARY = """add atan2 div eq floor_divide fmax fmin fmod ge gt isclose le logaddexp logaddexp2 lt maximum minimum mul ne nextafter remainder sub
true_divide multiply subtract greater less_equal not_equal""".split()


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    for call in (
        lambda s: getattr(s.torch, name)(s.x, s.y),
        lambda s: getattr(s.torch, name)(s.x, s.e),
        lambda s: getattr(s.torch, name)(s.e, s.x),
        lambda s: getattr(s.torch, name)(s.x, s.other),
    ):
        same(call)
    if name in ("add", "sub", "mul", "div", "multiply", "subtract", "true_divide"):
        same(gradient(lambda s: getattr(s.torch, name)(s.y, s.x)))


@pytest.mark.parametrize("name", ["all", "amax", "amin", "argmax", "argmin", "mean", "prod", "std", "sum", "var"])
def test_reductions(name: str) -> None:
    for call in (
        lambda s: getattr(s.x, name)(),
        lambda s: getattr(s.torch, name)(s.x, 1),
        lambda s: getattr(s.x, name)(dim=0, keepdim=True),
        lambda s: getattr(s.ints, name)(),
        lambda s: getattr(s.bools, name)(1),
        lambda s: getattr(s.x, name)(5),
        lambda s: getattr(s.x, name)(1, mask=s.m),
        lambda s: getattr(s.masked.masked_tensor(s.d, ~s.m & s.m), name)(),
        lambda s: getattr(s.csr.detach(), name)(0),
    ):
        same(call)
    if name not in ("all", "argmax", "argmin", "var", "std"):
        same(gradient(lambda s: getattr(s.x, name)()))
        same(gradient(lambda s: getattr(s.x, name)(0)))
        same(lambda s: getattr(s.coo, name)().item())


MOVES: dict[str, Call] = {
    "select": lambda s: s.x[0], "slice": lambda s: s.x[:, 1:], "both": lambda s: s.x[1, ::2], "new dim": lambda s: s.x.detach()[None],
    "by mask": lambda s: s.x.detach()[s.m], "by index": lambda s: s.x.detach()[s.torch.tensor([1, 1])], "t": lambda s: s.x.t(),
    "transpose": lambda s: s.x.transpose(0, 1), "view": lambda s: s.x.view(3, 2), "reshape": lambda s: s.x.reshape(-1),
    "flatten": lambda s: s.x.flatten(), "expand": lambda s: s.x.expand(2, 2, 3), "expand_as": lambda s: s.x.expand_as(s.torch.ones(2, 2, 3)),
    "unfold": lambda s: s.x.unfold(1, 2, 1), "cat": lambda s: s.torch.cat([s.x, s.y], 1), "stack": lambda s: s.torch.stack([s.x, s.other]),
    "vstack": lambda s: s.torch.vstack([s.x, s.x]), "chunk": lambda s: s.x.detach().chunk(2, 1), "split": lambda s: s.x.detach().split(2, 1),
    "narrow": lambda s: s.x.narrow(1, 0, 2), "mT": lambda s: s.x.mT, "unsqueeze": lambda s: s.x.detach().unsqueeze(1),
    "im2col": lambda s: s.torch.nn.functional.unfold(s.x.detach()[None, None], (2, 2)), "atleast_3d": lambda s: s.torch.atleast_3d(s.x.detach()),
    "broadcast": lambda s: s.torch.broadcast_tensors(s.x, s.torch.ones(1, 3))[0], "mixed": lambda s: s.torch.cat([s.x, s.d]),
    "coo row": lambda s: s.coo.detach()[0], "tensor_split": lambda s: s.x.detach().tensor_split(2, 1), "ravel": lambda s: s.x.ravel(),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    same(MOVES[name])
    same(gradient(MOVES[name]))


def changed(call: Call) -> Call:
    """What a masked tensor holds after an in-place call."""

    def run(s: Setting) -> Any:
        t = s.mt()
        s.t = t  # type: ignore[attr-defined]
        made = call(s)
        return [t, made is t]

    return run


def either(s: Setting) -> Any:
    return s.torch.ones(2, 3, requires_grad=True)


def leaf_gradient(build: Callable[[Setting, Any], Any], make: Call = either) -> Call:
    """The gradient that a plain leaf gets."""

    def run(s: Setting) -> Any:
        leaf = make(s)
        build(s, leaf).sum().backward()
        return leaf.grad

    return run


def twice(s: Setting) -> Any:
    (grad,) = s.torch.autograd.grad((s.x * s.x * s.x).sum(), s.x, create_graph=True)
    grad.sum().backward()
    return grad, s.x.grad


CALLS: dict[str, Call] = {
    # made of what
    "no tensor": lambda s: s.masked.masked_tensor([1.0], s.m), "no mask": lambda s: s.masked.masked_tensor(s.d, [True]),
    "of masked": lambda s: s.masked.masked_tensor(s.x, s.m), "shape": lambda s: s.masked.masked_tensor(s.d, s.m[:1]),
    "dims": lambda s: s.masked.masked_tensor(s.d, s.m[0]), "no bools": lambda s: s.masked.masked_tensor(s.d, s.m.int()),
    "bfloat16": lambda s: s.mt(s.torch.bfloat16), "uint8": lambda s: s.mt(s.torch.uint8), "complex": lambda s: s.mt(s.torch.complex64),
    "float16": lambda s: s.mt(s.torch.float16), "layouts": lambda s: s.masked.masked_tensor(s.d.to_sparse(), s.m),
    "csc": lambda s: s.masked.masked_tensor(s.d.to_sparse_csc(), s.m.to_sparse_csc()),
    "more in coo": lambda s: s.masked.masked_tensor(s.d.to_sparse(), s.m.to_sparse()),
    "more in csr": lambda s: s.masked.masked_tensor(s.d.to_sparse_csr(), s.m.to_sparse_csr()),
    "other coo": lambda s: s.masked.masked_tensor((s.d * s.m[:, [1, 2, 0]]).to_sparse(), s.m.to_sparse()),
    "other csr": lambda s: s.masked.masked_tensor((s.d * s.m[:, [1, 2, 0]]).to_sparse_csr(), s.m.to_sparse_csr()),
    "whole with grad": lambda s: s.masked.masked_tensor(s.m.long(), s.m, True), "unary": lambda s: s.masked.MaskedTensor.unary(s.torch.exp, s.d, s.m),
    "is": lambda s: [s.masked.is_masked_tensor(s.x), s.masked.is_masked_tensor(s.d), isinstance(s.x, s.torch.Tensor), s.torch.is_tensor(s.x)],
    "of number": lambda s: s.masked.masked_tensor(s.d[0, 0], s.m[0, 0]), "of no number": lambda s: s.masked.masked_tensor(s.d[0, 1], s.m[0, 1]),
    "3d": lambda s: s.masked.masked_tensor(s.d[None] * 1e6, s.m[None]), "empty": lambda s: s.masked.masked_tensor(s.d[:0], s.m[:0]),
    "wide": lambda s: s.masked.masked_tensor(s.torch.tensor([1e-9, 1e9, 12345.6, float("nan")]), s.torch.tensor([True, False, True, True])),
    # parts
    "data": lambda s: s.x.get_data(), "mask": lambda s: s.x.get_mask(), "tensor": lambda s: s.x.to_tensor(-1.0), "coo data": lambda s: s.coo.get_data(),
    "csr mask": lambda s: s.csr.get_mask(), "facts": lambda s: [s.x.stride(), s.x.is_contiguous(), s.x.layout, s.x.is_sparse, s.x.numel(), len(s.x),
    s.x.data_ptr(), s.x.is_leaf], "sparse facts": lambda s: [s.coo.is_sparse, s.coo.is_sparse_coo(), s.csr.is_sparse_coo(), s.csr.is_sparse_csr(),
    s.coo.layout, s.csr.shape], "item": lambda s: s.x.item(), "list": lambda s: s.x.tolist(), "numpy": lambda s: s.x.numpy(),
    "truth": lambda s: bool(s.x), "one": lambda s: [s.x.sum().item(), float(s.x.sum()), int(s.x.sum()), bool(s.x.sum())],
    "nothing's item": lambda s: s.other[0, 0].item(), "iterated": lambda s: list(s.x), "formatted": lambda s: f"{s.x}",
    "with a format": lambda s: f"{s.x.sum():.2f}", "bound to coo": lambda s: s.coo.is_contiguous(), "detached": lambda s: s.x.detach(),
    "copied": lambda s: copy.deepcopy(s.x), "pickled": lambda s: pickle.loads(pickle.dumps(s.x)), "cloned": lambda s: s.x.clone(),
    "cast": lambda s: s.x.double(), "to": lambda s: s.x.to(s.torch.int64), "type": lambda s: s.x.type(s.torch.float16), "bool": lambda s: s.x.bool(),
    "ones": lambda s: s.torch.ones_like(s.x), "whole ones": lambda s: s.torch.ones_like(s.x, dtype=s.torch.int64),
    # operators
    "numbers": lambda s: [s.x + 1, 2 + s.x, s.x - 1, s.x * 2, s.x / 2, 2 / s.x, s.x // 0.2, s.x % 0.2, s.x**2, -s.x, abs(s.x)],
    "number minus": lambda s: 1 - s.x, "number to": lambda s: 2**s.x, "masked to masked": lambda s: s.x**s.y,
    "compared": lambda s: [s.x < 0.5, s.x <= 0.5, s.x > 0.5, s.x == s.y, s.x != s.e, s.x < s.other], "bits": lambda s: [~s.bools, s.bools & s.bools,
    s.bools | s.bools, s.bools ^ s.bools, s.ints & 3], "alpha": lambda s: s.torch.add(s.x, s.y, alpha=2),
    "decimals": lambda s: s.torch.round(s.x, decimals=1), "rounding": lambda s: s.torch.div(s.x, s.y, rounding_mode="floor"),
    "clamp": lambda s: s.x.clamp(0.3, 0.8), "clamp by name": lambda s: s.x.clamp(min=0.5), "clamp by tensors": lambda s: s.torch.clamp(s.x, s.e, s.d),
    "logit": lambda s: s.torch.logit(s.x, 0.1), "rows": lambda s: s.masked.masked_tensor(s.d[0], s.m[0]) + s.e, "columns": lambda s: s.e[0] * s.x,
    "row mask": lambda s: s.masked.masked_tensor(s.d[0], s.m[0]) + s.x, "max": lambda s: s.torch.max(s.x, s.y), "max of one": lambda s: s.x.max(),
    "softmax": lambda s: [s.x.softmax(0), s.torch.nn.functional.softmax(s.x, -1), s.torch.softmax(s.x, 1)],
    "where": lambda s: [s.torch.where(s.d > 0.5, s.x, s.other), s.torch.where(s.d > 0.5, s.x, s.e), s.torch.where(s.d > 0.5, s.x, 0.0)],
    "several dims": lambda s: [s.x.sum((0, 1)), s.x.sum([0]), s.x.sum(0, dtype=s.torch.float64)], "dim None": lambda s: s.x.sum(dim=None),
    "correction": lambda s: s.x.var(1, correction=0), "whole mean": lambda s: s.ints.mean(), "bool amax": lambda s: s.bools.amax(),
    "bool var": lambda s: s.bools.var(), "coo place": lambda s: [s.coo.argmax(), s.coo.argmin(), s.csr.argmax()],
    "sparse": lambda s: [s.coo.exp(), s.csr.sin(), s.coo + s.coo, s.csr * 2, s.csr == s.csr, s.coo.to_dense(), s.coo.to_sparse_csr()],
    "sparse and dense": lambda s: s.coo * s.d, "masked.sum": lambda s: [s.masked.sum(s.x), s.masked.mean(s.x, 1, mask=s.m), s.masked.softmax(s.x, 1),
    s.masked.norm(s.x, 2.0, 1), s.masked.sum(s.x, 1, mask=~s.m)],
    # in place
    "added": changed(lambda s: s.t.add_(1)), "sine": changed(lambda s: s.t.sin_()), "times": changed(lambda s: s.t.mul_(s.y)),
    "times others": changed(lambda s: s.t.mul_(s.other)), "copied in": changed(lambda s: s.t.copy_(s.other)), "leaf": lambda s: s.x.add_(1),
    "filled": changed(lambda s: s.t.fill_(2.0)), "zeroed": changed(lambda s: s.t.zero_()), "item set": lambda s: s.mt().__setitem__(0, 5.0),
    "whole plus float": lambda s: s.ints.add_(1.5),
    # gradients
    "of sparse": gradient(lambda s: s.x.to_sparse_coo().to_dense()), "of data": gradient(lambda s: s.x.get_data().exp()),
    "of tensor": gradient(lambda s: s.x.to_tensor(0)), "of softmax": gradient(lambda s: s.x.softmax(1) * s.y), "of square": gradient(lambda s: s.x * s.x),
    "of copy": gradient(lambda s: s.x.clone().double()), "of masked.sum": gradient(lambda s: s.masked.sum(s.x, 1)),
    "of masked.mean": gradient(lambda s: s.masked.mean(s.x, 0, mask=s.m)), "twice": twice, "of a plain leaf": leaf_gradient(lambda s, p: p * s.x),
    "of rows": leaf_gradient(lambda s, p: p * s.x, lambda s: s.torch.ones(3, requires_grad=True)),
    "of a number": leaf_gradient(lambda s, p: p * s.x, lambda s: s.torch.tensor(3.0, requires_grad=True, dtype=s.torch.float64)),
    "of as_masked_tensor": leaf_gradient(lambda s, p: s.masked.as_masked_tensor(p, s.m).exp()),
    "in place": leaf_gradient(lambda s, p: s.mt().mul_(p)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    same(CALLS[name])


NOT_THERE = """permute squeeze unbind repeat index_select gather flip roll diagonal tril masked_fill masked_select log_softmax cumsum matmul mm new_ones
new_zeros max min any sort topk median relu values indices zeros_like equal allclose""".split()


@pytest.mark.parametrize("name", NOT_THERE)
def test_what_neither_has(name: str) -> None:
    given: dict[str, tuple[Any, ...]] = {
        "permute": (1, 0), "repeat": (2, 1), "gather": (0,), "flip": (0,), "roll": (1,), "log_softmax": (0,), "cumsum": (0,), "new_ones": ((2,),),
        "new_zeros": ((2,),), "topk": (1,),
    }  # fmt: skip

    def call(s: Setting) -> Any:
        args = given.get(name, ())
        if name in ("matmul", "mm"):
            args = (s.d.t(),)
        elif name in ("index_select", "gather"):
            args = (0, s.torch.tensor([0]) if name == "index_select" else s.torch.tensor([[0]]))
        elif name in ("masked_fill", "masked_select"):
            args = (s.m, 0.0)[: 2 if name == "masked_fill" else 1]
        elif name in ("equal", "allclose"):
            args = (s.x,)
        return getattr(s.x, name)(*args) if hasattr(s.torch.Tensor, name) else getattr(s.torch, name)(s.x, *args)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = outcome(rushlight, call)
    assert found == outcome(reference, call) == "TypeError"
    assert any("is not implemented" in str(w.message) for w in caught)
