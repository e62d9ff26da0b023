"""PyTorch's own samples run through the operators (`harness`), compared with PyTorch."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from typing import Any

import numpy as np
import torch
from tests.ops.harness import Arr, Unbindable, bind, gradients, run_graph
from torch.testing._internal.common_methods_invocations import op_db

from rushlight._engine.dispatch.lower import trace_operator
from rushlight._ops.families import MODULES
from rushlight._ops.table import OPERATORS, Operator
from rushlight._types.dtype import BFLOAT16, BY_NAME, DType

TOLERANCE = {
    torch.float32: 5e-5,
    torch.float64: 1e-7,
    torch.bfloat16: 1.6e-2,
    torch.float16: 2e-3,
    torch.complex64: 1e-4,
    torch.complex128: 1e-7,
}


def public_names(op: Operator) -> list[str]:
    """All names under which op_db may list this operator."""
    names = []
    for space in op.spaces:
        for name in (op.schema.name, *(a for a in op.aliases if "." not in a)):
            names.append(name if space == "torch" else f"{space}.{name}")
    return names + [a for a in op.aliases if "." in a] + ([op.schema.name] if op.method else [])


def infos(op: Operator) -> list[Any]:
    names = set(public_names(op))
    return [info for info in op_db if info.name in names]


def peer(op: Operator) -> Any:
    """PyTorch's function (or method) of the operator's public name; None where it has none."""
    for space in op.spaces:
        page = torch if space == "torch" else getattr(torch, space, None) or importlib.import_module(f"torch.{space}")
        found = getattr(page, op.public.removeprefix(f"{space}_"), None)
        if found is not None:
            return found
    return getattr(torch.Tensor, op.public, None) if op.method else None


def dtype_of(t: torch.Tensor) -> DType:
    return BY_NAME[str(t.dtype).split(".")[-1]]


def to_arr(t: torch.Tensor) -> Arr:
    t = t.detach().resolve_conj().resolve_neg()
    if t.dtype is torch.bfloat16:
        return Arr(t.float().numpy().copy(), BFLOAT16)
    return Arr(t.numpy().copy())


def convert(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return to_arr(value)
    if isinstance(value, torch.dtype):
        return BY_NAME[str(value).split(".")[-1]]
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        return (
            type(value)(convert(v) for v in value) if type(value) in (list, tuple) else tuple(convert(v) for v in value)
        )
    return value


def tensors_in(*values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_in(*value)
    return found


def close(mine: Arr, theirs: torch.Tensor, scale: float = 1.0) -> str | None:
    """None, or what differs."""
    theirs = theirs.detach().resolve_conj().resolve_neg()
    if mine.dtype is not dtype_of(theirs):
        return f"dtype {mine.dtype.name} instead of {theirs.dtype}"
    if tuple(mine.array.shape) != tuple(theirs.shape):
        return f"shape {mine.array.shape} instead of {tuple(theirs.shape)}"
    tolerance = TOLERANCE.get(theirs.dtype, 0.0) * scale
    expected = to_arr(theirs).array
    if tolerance == 0.0:
        same = np.array_equal(mine.array, expected)
    else:
        with np.errstate(all="ignore"):
            same = np.allclose(mine.array, expected, rtol=tolerance, atol=tolerance / 4, equal_nan=True)
    return None if same else f"values {mine.array.reshape(-1)[:6]} instead of {expected.reshape(-1)[:6]}"


def results_of(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def check_forward(op: Operator, theirs: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[str | None, Any]:
    """(what differs, the bound call)."""
    bound = bind(op, [convert(a) for a in args], {k: convert(v) for k, v in kwargs.items()})
    graph, count = trace_operator(op, bound.template, bound.specs)
    mine = [Arr(a, v.dtype) for a, v in zip(run_graph(graph, bound.inputs()), graph.outputs, strict=True)]
    expected = results_of(theirs)
    if count != len(expected):
        return f"{count} results instead of {len(expected)}", bound
    for m, t in zip(mine, expected, strict=True):
        wrong = close(m, t)
        if wrong:
            return wrong, bound
    return None, bound


def check_gradient(op: Operator, bound: Any, leaves: list[torch.Tensor], results: list[torch.Tensor]) -> str | None:
    generator = torch.Generator().manual_seed(0)
    chosen = [r for r in results if r.requires_grad]
    if not chosen:
        return None
    cts = [
        torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) if r.requires_grad else None
        for r in results
    ]
    wrt = [i for i, leaf in enumerate(leaves) if leaf.requires_grad]
    wanted = torch.autograd.grad(chosen, [leaves[i] for i in wrt], [c for c in cts if c is not None], allow_unused=True)
    mine = gradients(op, bound, wrt, [None if c is None else to_arr(c) for c in cts])
    for m, t in zip(mine, wanted, strict=True):
        if m is None or t is None:
            other = t if m is None else torch.from_numpy(np.asarray(m.array))
            if other is not None and bool((other != 0).any()):
                return f"gradient is {'None' if m is None else 'not None'}, expected {'None' if t is None else 'one'}"
            continue
        wrong = close(m, t, 12.0 if t.dtype is torch.bfloat16 else 4.0)
        if wrong:
            return "gradient: " + wrong
    return None


def check(op: Operator, dtype: torch.dtype, samples: int, grad: bool = True) -> tuple[Counter[str], list[str]]:
    """Run up to `samples` samples of every entry of op_db that is this operator; counts, and descriptions of failures."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for info in infos(op):
        if dtype not in info.supported_dtypes("cpu"):
            continue
        differentiable = grad and dtype in info.supported_backward_dtypes("cpu") and info.supports_autograd
        found = list(info.sample_inputs("cpu", dtype, requires_grad=differentiable))
        step = max(1, len(found) // samples)
        for sample in found[::step][: samples + 1]:
            counts_one, message = check_sample(op, info, sample, differentiable)
            counts[counts_one] += 1
            if message:
                wrong.append(f"{info.name} {info.variant_test_name} {dtype} {describe(sample)}: {message}")
    return counts, wrong


def from_arr(value: Any, grad: bool) -> Any:
    """An argument of our own samples as PyTorch takes it."""
    if isinstance(value, Arr):
        made = torch.from_numpy(np.array(value.array))
        return made.requires_grad_(grad and (made.is_floating_point() or made.is_complex()))
    if isinstance(value, DType):
        return getattr(torch, value.name)
    return [from_arr(v, grad) for v in value] if isinstance(value, list) else value


def check_own(op: Operator, calls: list[tuple[list[Any], dict[str, Any]]], theirs: Any, grad: bool = True) -> list[str]:
    """Run our own samples (arguments with `Arr` for tensors) against PyTorch's function `theirs`; descriptions of failures."""
    wrong = []
    for args, kwargs in calls:
        given, named = [from_arr(a, grad) for a in args], {k: from_arr(v, grad) for k, v in kwargs.items()}
        expected = theirs(*given, **named)
        message, bound = check_forward(op, expected, given, named)
        leaves = tensors_in(*given, *sample_kwargs_in_order(op, named))
        if message is None and grad and len(leaves) == len(bound.tensors):
            message = check_gradient(op, bound, leaves, results_of(expected))
        if message:
            wrong.append(f"{op.public}({', '.join(map(repr, args))}, {kwargs}): {message}")
    return wrong


def describe(sample: Any) -> str:
    def short(v: Any) -> str:
        if isinstance(v, torch.Tensor):
            return f"{str(v.dtype)[6:]}{list(v.shape)}"
        return "[" + ", ".join(map(short, v)) + "]" if isinstance(v, (list, tuple)) else repr(v)

    return f"({short(sample.input)}, {short(sample.args)}, {', '.join(f'{k}={short(v)}' for k, v in sample.kwargs.items())})"


def check_sample(op: Operator, info: Any, sample: Any, grad: bool) -> tuple[str, str | None]:
    args = [sample.input, *sample.args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = info.op(*args, **sample.kwargs)
        except Exception:
            return "oracle refuses", None
        try:
            message, bound = check_forward(op, theirs, args, sample.kwargs)
        except Unbindable:
            return "other overload", None
        except Exception as error:
            return "error", f"{type(error).__name__}: {error}"
        if message:
            return "forward", message
        if grad:
            leaves = tensors_in(*args, *sample_kwargs_in_order(op, sample.kwargs))
            if len(leaves) == len(bound.tensors):
                try:
                    message = check_gradient(op, bound, leaves, results_of(theirs))
                except Exception as error:
                    return "gradient error", f"gradient {type(error).__name__}: {error}"
                if message:
                    return "gradient", message
    return "ok", None


def sample_kwargs_in_order(op: Operator, kwargs: dict[str, Any]) -> list[Any]:
    return [kwargs[a.name] for a in op.schema.arguments if a.name in kwargs]


def main() -> None:
    """python tests/ops/oracle.py FILE... : report on the operators that these modules declare."""
    import re
    import sys

    names = sys.argv[1:]
    pattern = names.pop(0)[1:] if names and names[0].startswith("/") else "."
    for name in names:
        importlib.import_module(MODULES[name])
    for key in sorted(OPERATORS):
        op = OPERATORS[key]
        if (names and op.body.__module__.split(".")[-1] not in names) or not re.search(pattern, key):
            continue
        total: Counter[str] = Counter()
        for dtype in (
            torch.float32,
            torch.float64,
            torch.int64,
            torch.bool,
            torch.bfloat16,
            torch.complex64,
            torch.uint8,
        ):
            counts, wrong = check(op, dtype, 12)
            total += counts
            for line in wrong[:2]:
                print("   ", line[:300])
        if set(total) != {"ok"}:
            print(key, dict(total) or "no samples")


if __name__ == "__main__":
    main()
