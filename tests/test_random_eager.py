"""Random eager programs, run twice: here and in real PyTorch.

A program is a list of steps over public functions, methods, views and in-place operations.  Values, shapes, strides, dtypes, flags and
gradients must agree, and where PyTorch raises, so must we, with the same class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

# A step takes the module and the values so far, and returns a new value.  In-place steps change a value and return it.
Step = Callable[[Any, list[Any]], Any]


class Program:
    """Chooses steps by looking at PyTorch's run; the same steps are then taken here."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        shape = [int(s) for s in self.rng.integers(1, 5, size=int(self.rng.integers(1, 4)))]
        self.leaves = [self.rng.normal(size=shape).astype("float32") for _ in range(2)]
        self.grad = [True, bool(self.rng.integers(2))]
        self.steps: list[tuple[str, Step]] = []

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def choose(self, values: list[Any]) -> tuple[str, Step]:
        """One step that may be taken after these values."""
        i = len(values) - 1 - min(int(self.rng.exponential(1.2)), len(values) - 1)
        j = self.below(len(values))
        x = values[i]
        kind = self.rng.choice(["unary", "binary", "reduce", "view", "inplace", "index", "join", "other"], p=P)
        return getattr(self, kind)(i, j, x, values)

    # ***** the families *****

    def unary(self, i: int, j: int, x: Any, values: list[Any]) -> tuple[str, Step]:
        name = str(self.rng.choice(
            ["exp", "tanh", "sigmoid", "relu", "neg", "abs", "sin", "square", "erf", "floor", "sign", "reciprocal", "log1p", "rsqrt"]
        ))  # fmt: skip
        if name in ("log1p", "rsqrt", "reciprocal"):
            return name, lambda m, v: getattr(m, name)(v[i].abs() + 0.5)
        if name == "exp":
            return name, lambda m, v: m.exp(m.tanh(v[i]))
        return name, lambda m, v: getattr(m, name)(v[i])

    def binary(self, i: int, j: int, x: Any, values: list[Any]) -> tuple[str, Step]:
        name = str(self.rng.choice(["add", "sub", "mul", "maximum", "minimum", "div", "number", "rsub", "power", "where", "alpha"]))
        number = float(self.rng.normal())
        made: dict[str, Step] = {
            "div": lambda m, v: v[i] / (v[j].abs() + 1),
            "number": lambda m, v: v[i] * number + 1,
            "rsub": lambda m, v: 2 - v[i],
            "power": lambda m, v: v[i] ** 2,
            "where": lambda m, v: m.where(v[i] > 0, v[i], v[j]),
            "alpha": lambda m, v: m.add(v[i], v[j], alpha=number),
        }
        return name, made.get(name, lambda m, v: getattr(m, name)(v[i], v[j]))

    def reduce(self, i: int, j: int, x: Any, values: list[Any]) -> tuple[str, Step]:
        name = str(self.rng.choice(["sum", "mean", "amax", "var", "logsumexp", "all", "prod", "max", "norm"]))
        dim, keep = self.below(max(x.ndim, 1)) - (max(x.ndim, 1) if self.below(2) else 0), bool(self.below(2))
        made: dict[str, Step] = {
            "all": lambda m, v: v[i].sum(),
            "max": lambda m, v: v[i].max(dim, keepdim=keep).values,
            "norm": lambda m, v: (v[i] * v[i]).sum().add(1).sqrt(),
            "var": lambda m, v: v[i].var(dim, unbiased=False, keepdim=keep),
        }
        return f"{name}({dim}, {keep})", made.get(name, lambda m, v: getattr(v[i], name)(dim, keepdim=keep))

    def view(self, i: int, j: int, x: Any, values: list[Any]) -> tuple[str, Step]:
        n = x.ndim
        d = self.below(n) if n else 0
        perm = [int(p) for p in self.rng.permutation(n)]
        step = 1 + self.below(2)
        start = self.below(x.shape[d]) if n and x.shape[d] else 0
        count = x.numel()
        factor = int(self.rng.choice([f for f in range(1, max(count, 1) + 1) if count % f == 0])) if count else 1
        made: dict[str, Step] = {
            "permute": lambda m, v: v[i].permute(perm),
            "view": lambda m, v: v[i].view(factor, -1) if count else v[i].view(v[i].shape),
            "reshape": lambda m, v: v[i].reshape(-1, factor) if count else v[i].reshape(v[i].shape),
            "unsqueeze": lambda m, v: v[i].unsqueeze(d),
            "squeeze": lambda m, v: v[i].squeeze(),
            "expand": lambda m, v: v[i].expand(2, *v[i].shape),
            "slice": lambda m, v: v[i][(slice(None),) * d + (slice(start, None, step),)] if n else v[i],
            "select": lambda m, v: v[i].select(d, start) if n and v[i].shape[d] else v[i].clone(),
            "narrow": lambda m, v: v[i].narrow(d, start, 1) if n and v[i].shape[d] else v[i],
            "flatten": lambda m, v: v[i].flatten(),
            "t": lambda m, v: v[i].transpose(0, -1) if n else v[i],
            "contiguous": lambda m, v: v[i].contiguous(),
            "detach": lambda m, v: v[i].detach(),
            "diagonal": lambda m, v: v[i].diagonal(dim1=0, dim2=1) if n > 1 else v[i],
            "chunk": lambda m, v: v[i].chunk(2, d)[0].clone() if n else v[i],
            "unfold": lambda m, v: v[i].unfold(d, 1 + start, 1) if n and v[i].shape[d] else v[i],
        }
        name = str(self.rng.choice(list(made)))
        return f"{name} of {i}, dim {d}, {start}, {step}, {factor}, {perm}", made[name]

    def inplace(self, i: int, j: int, x: Any, values: list[Any]) -> tuple[str, Step]:
        number = float(self.rng.normal())
        d = self.below(x.ndim) if x.ndim else 0
        made: dict[str, Step] = {
            "add_": lambda m, v: v[i].add_(v[j]),
            "mul_": lambda m, v: v[i].mul_(number),
            "relu_": lambda m, v: v[i].relu_(),
            "tanh_": lambda m, v: v[i].tanh_(),
            "copy_": lambda m, v: v[i].copy_(v[j]),
            "fill": lambda m, v: _set(v[i], (Ellipsis, slice(0, 1)) if v[i].ndim else (), number),
            "setitem": lambda m, v: _set(v[i], slice(0, 1) if v[i].ndim else (), v[j].sum()),
            "masked_fill_": lambda m, v: v[i].masked_fill_(v[i] > 0, number),
            "zero_": lambda m, v: v[i].zero_(),
            "of a clone": lambda m, v: v[i].clone().add_(1).mul_(v[j].mean()),
            "of a view": lambda m, v: _through(v[i].clone(), d, number),
            "sub_ alpha": lambda m, v: v[i].sub_(v[j], alpha=number),
        }
        name = str(self.rng.choice(list(made)))
        return f"{name} on {i} with {j}", made[name]

    def index(self, i: int, j: int, x: Any, values: list[Any]) -> tuple[str, Step]:
        n = x.shape[0] if x.ndim else 0
        if not n:
            return "clone", lambda m, v: v[i].clone()
        rows = [int(r) for r in self.rng.integers(-n, n, size=3)]
        positive = [r % n for r in rows]
        made: dict[str, Step] = {
            "rows": lambda m, v: v[i][m.tensor(rows)],
            "list": lambda m, v: v[i][rows],
            "mask": lambda m, v: v[i][v[i] > 0],
            "index_select": lambda m, v: v[i].index_select(0, m.tensor(positive)),
            "none": lambda m, v: v[i][None, ..., 0],
            "gather": lambda m, v: v[i].gather(0, m.zeros_like(v[i], dtype=m.int64)),
            "index_add": lambda m, v: v[i].index_add(0, m.tensor(positive), v[i][positive]),
            "put": lambda m, v: v[i].clone().index_put_((m.tensor(rows),), v[i][rows] * 2, accumulate=True),
        }
        name = str(self.rng.choice(list(made)))
        return f"{name} of {i} at {rows}", made[name]

    def join(self, i: int, j: int, x: Any, values: list[Any]) -> tuple[str, Step]:
        made: dict[str, Step] = {
            "cat": lambda m, v: m.cat([v[i], v[i] * 2]) if v[i].ndim else v[i].clone(),
            "stack": lambda m, v: m.stack([v[i], v[i].sin()], -1),
            "matmul": lambda m, v: m.matmul(v[i].flatten(), v[i].flatten()),
            "outer": lambda m, v: v[i].flatten()[:4].unsqueeze(1) @ v[j].flatten()[:3].unsqueeze(0),
            "split": lambda m, v: sum(p.sum() for p in v[i].split(2)) if v[i].ndim else v[i].clone(),
        }
        name = str(self.rng.choice(list(made)))
        return f"{name} of {i} and {j}", made[name]

    def other(self, i: int, j: int, x: Any, values: list[Any]) -> tuple[str, Step]:
        d = self.below(x.ndim) if x.ndim else 0
        made: dict[str, Step] = {
            "softmax": lambda m, v: m.softmax(v[i], d),
            "log_softmax": lambda m, v: m.log_softmax(v[i], d),
            "cumsum": lambda m, v: v[i].cumsum(d),
            "sort": lambda m, v: v[i].sort(d).values,
            "double": lambda m, v: v[i].double().mul(0.1).float(),
            "half": lambda m, v: v[i].half().float(),
            "clamp": lambda m, v: v[i].clamp(-0.5, 0.5),
            "gelu": lambda m, v: m.nn.functional.gelu(v[i]),
            "layer_norm": lambda m, v: m.nn.functional.layer_norm(v[i], v[i].shape[-1:]) if v[i].ndim else v[i].clone(),
            "tril": lambda m, v: v[i].tril() if v[i].ndim > 1 else v[i].clone(),
            "flip": lambda m, v: v[i].flip(d) if v[i].ndim else v[i].clone(),
            "no_grad": lambda m, v: _without(m, v[i]),
        }
        name = str(self.rng.choice(list(made)))
        return f"{name} of {i}, dim {d}", made[name]


P = np.array([3, 4, 2, 5, 3, 2, 1, 2]) / 22


def _set(x: Any, place: Any, value: Any) -> Any:
    x[place] = value
    return x


def _through(x: Any, d: int, number: float) -> Any:
    """Change a view, return the base."""
    if x.ndim and x.shape[d]:
        x.select(d, 0).mul_(number).add_(1)
    return x


def _without(m: Any, x: Any) -> Any:
    with m.no_grad():
        return x * 2


def leaves(m: Any, program: Program) -> list[Any]:
    return [m.tensor(a.tolist()).requires_grad_(g) for a, g in zip(program.leaves, program.grad, strict=True)]


def attempt(step: Step, m: Any, values: list[Any]) -> Any:
    try:
        return step(m, values)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return error


def compare(ours: Any, theirs: Any, what: str) -> None:
    a, b = ours.detach(), theirs.detach()
    assert tuple(a.shape) == tuple(b.shape), what
    assert str(a.dtype) == str(b.dtype), what
    if a.numel():  # strides of single elements mean nothing
        assert [s for s, n in zip(a.stride(), a.shape) if n > 1] == [s for s, n in zip(b.stride(), b.shape) if n > 1], (
            f"{what}: strides {a.stride()}, expected {b.stride()}, shape {tuple(a.shape)}"
        )
    assert ours.requires_grad == theirs.requires_grad and ours.is_leaf == theirs.is_leaf, what
    x, y = np.asarray(a.tolist(), dtype="float64"), np.asarray(b.tolist(), dtype="float64")
    np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5 * max(1.0, np.nanmax(np.abs(y), initial=1.0)), err_msg=what)


def run(seed: int, length: int = 10, order: int = 1) -> None:
    program = Program(seed)
    theirs, ours = leaves(torch, program), leaves(rushlight, program)
    told: list[str] = []
    for _ in range(length):
        name, step = program.choose(theirs)
        told.append(name)
        expected, got = attempt(step, torch, theirs), attempt(step, rushlight, ours)
        text = f"seed {seed}: " + "; ".join(told)
        if isinstance(expected, Exception):
            assert type(got) is type(expected), f"{text}: expected {expected!r}, got {got!r}"
            continue
        if isinstance(got, Exception):
            raise AssertionError(text) from got
        compare(got, expected, text)
        if not 0 < expected.numel() <= 500 or not torch.isfinite(expected).all() or expected.abs().max() > 1e4:
            continue
        theirs.append(expected)
        ours.append(got)
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):  # later in-place steps show through every view
        compare(a, b, f"seed {seed}: value {k} at the end of {'; '.join(told)}")
    gradients(ours, theirs, order, f"seed {seed}: {'; '.join(told)}")


def gradients(ours: list[Any], theirs: list[Any], order: int, text: str) -> None:
    """Backward from the last values; both modules must agree on errors of autograd as well."""

    def back(m: Any, values: list[Any]) -> Any:
        total = sum((v.tanh().sum() for v in values[2:] if v.requires_grad and v.is_floating_point()), m.zeros(()))
        if order == 2 and total.requires_grad and values[0].is_leaf:
            (grad,) = m.autograd.grad(total, values[0], create_graph=True, allow_unused=True)
            total = total if grad is None else (grad * grad).sum() + total
        if total.requires_grad:
            total.backward()
        return total

    expected, got = attempt(back, torch, theirs), attempt(back, rushlight, ours)
    if isinstance(expected, Exception):
        # We may have saved something else than PyTorch, and so have nothing to complain of.
        fine = "modified by an inplace operation" in str(expected) and not isinstance(got, Exception)
        assert fine or type(got) is type(expected), f"{text}: expected {expected!r}, got {got!r}"
        return
    if isinstance(got, Exception):
        raise AssertionError(text) from got
    for a, b in zip(ours[:2], theirs[:2], strict=True):
        if not b.is_leaf:
            continue
        assert (a.grad is None) == (b.grad is None), text
        if b.grad is not None and torch.isfinite(b.grad).all():
            compare(a.grad, b.grad, f"{text}: gradient")


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", range(100, 130))
def test_random_program_twice_differentiated(seed: int) -> None:
    run(seed, length=6, order=2)
