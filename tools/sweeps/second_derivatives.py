"""Second derivatives of every operator beside PyTorch's: which exist, which are refused, and their values.

    python tools/sweeps/second_derivatives.py [--only 'relu|linalg'] [--samples 6] [--mode] [--compiled]

PyTorch's own samples are differentiated with `create_graph=True`, once with a plain cotangent and once with one that requires a gradient.
Printed is each call where the two disagree on: whether a first gradient is None and whether it requires a gradient; which second gradients are
None (then a call without `allow_unused` raises); an error; a value.

With `--compiled` ours is compared with itself, bit for bit: gradients of gradients through a compiled function, added to first ones, beside eager.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import rushlight
from rushlight.utils._python_dispatch import BaseTorchDispatchMode

DTYPE = torch.float64
# The random numbers of these are other ones for each call, or their results are not numbers that follow from the inputs alone.
UNDEFINED = re.compile(
    r"dropout|empty|bernoulli|rrelu|multinomial|normal|uniform|exponential|rand|lowrank|geometric|cauchy|gumbel|pca|lobpcg|fractional"
)


def resolve(name: str) -> Any:
    """The function (or method) that users call by this name; None where there is none."""
    found: Any = rushlight
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return getattr(rushlight.Tensor, name, None)
    return found if callable(found) else getattr(rushlight.Tensor, name, None)


def moved(value: Any) -> Any:
    """A sample's value with tensors of the other library."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg()
        made = rushlight.from_numpy(plain.numpy().copy())
        if plain.numel() and plain.stride() != made.stride():
            made = rushlight.empty_strided(tuple(plain.shape), plain.stride(), dtype=made.dtype).copy_(made)
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, torch.dtype):
        return getattr(rushlight, str(value).split(".")[-1])
    if isinstance(value, torch.memory_format | torch.layout):
        return getattr(rushlight, str(value).split(".")[-1])
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(moved(v) for v in value)
    if isinstance(value, dict):
        return {k: moved(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(v) for v in value)
    return value


def tensors_in(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor | rushlight.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, list | tuple) else []


def second(module: Any, function: Any, args: list[Any], kwargs: dict[str, Any], linked: bool) -> dict[str, Any]:
    """What differentiating twice gives: facts and values by name.  `linked`: the cotangents require gradients."""
    leaves = [t for t in tensors_in([args, kwargs]) if t.requires_grad]
    outs = [t for t in tensors_in(function(*args, **kwargs)) if t.requires_grad]
    if not outs or not leaves:
        return {}
    draw = np.random.default_rng(1)
    cts = []
    for out in outs:
        numbers = draw.standard_normal(tuple(out.shape))
        made = module.from_numpy(np.asarray(numbers)).to(out.dtype)
        cts.append(made.requires_grad_() if linked else made)
    first = module.autograd.grad(outs, leaves, cts, create_graph=True, allow_unused=True)
    found: dict[str, Any] = {"first": [None if g is None else g.requires_grad for g in first]}
    wrt = leaves + (cts if linked else [])
    for k, grad in enumerate(first):
        if grad is None or not grad.requires_grad:
            continue
        numbers = np.asarray(draw.standard_normal(tuple(grad.shape)))
        try:
            twice = module.autograd.grad(
                grad, wrt, module.from_numpy(numbers).to(grad.dtype), retain_graph=True, allow_unused=True
            )
        except (RuntimeError, NotImplementedError) as error:
            found[f"second {k}"] = f"raises: {str(error).splitlines()[0][:80]}"
            continue
        found[f"second {k}"] = [t is not None for t in twice]
        found[f"values {k}"] = [None if t is None else t.detach().resolve_conj().resolve_neg().numpy() for t in twice]
    return found


def meeting(function: Any, args: list[Any], kwargs: dict[str, Any], compiled: bool) -> list[Any]:
    """Results, first gradients, and those of a sum of results and first gradients."""
    leaves = [t for t in tensors_in([args, kwargs]) if t.requires_grad]

    def program(*leaves: Any) -> list[Any]:
        outs = [t for t in tensors_in(function(*args, **kwargs)) if t.requires_grad]
        return [*outs, *[o * o.tanh() for o in outs], *[x * x.sin() for x in leaves]]

    rushlight.manual_seed(0)
    outs = (rushlight.compile(program) if compiled else program)(*leaves)
    weights = np.random.default_rng(1)
    cts = [rushlight.from_numpy(np.asarray(weights.standard_normal(tuple(o.shape)))).to(o.dtype) for o in outs]
    first = rushlight.autograd.grad(outs, leaves, cts, create_graph=True, allow_unused=True)
    ends = [t for t in [*outs, *first] if t is not None and t.requires_grad]
    again = [rushlight.from_numpy(np.asarray(weights.standard_normal(tuple(o.shape)))).to(o.dtype) for o in ends]
    found = [*outs, *first, *rushlight.autograd.grad(ends, leaves, again, allow_unused=True)]
    return [None if t is None else (t.requires_grad, t.detach().resolve_conj().numpy().tobytes()) for t in found]


def compare_compiled(info: Any, sample: Any) -> tuple[str, str]:
    """(kind of outcome, what differs) of ours compiled beside ours."""
    function = resolve(info.name)
    if not callable(function):
        return "absent", ""
    args, kwargs = [sample.input, *sample.args], dict(sample.kwargs)
    try:
        eager = meeting(function, moved(args), moved(kwargs), compiled=False)
    except Exception:
        return "eager refuses", ""
    try:
        found = meeting(function, moved(args), moved(kwargs), compiled=True)
    except Exception as error:
        return "error", f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    places = [k for k, (a, b) in enumerate(zip(eager, found, strict=True)) if a != b]
    return ("differs", f"values {places} of {len(found)}") if places else ("same", "")


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """What differs, in words."""
    for key in theirs.keys() | ours.keys():
        wanted, found = theirs.get(key), ours.get(key)
        if key.startswith("values"):
            for j, (a, b) in enumerate(zip(wanted or [], found or [], strict=False)):
                if a is None or b is None:
                    continue
                if a.shape != b.shape:
                    yield f"{key}[{j}]: shape {b.shape} instead of {a.shape}"
                elif not np.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True):
                    yield f"{key}[{j}]: {b.reshape(-1)[:4]} instead of {a.reshape(-1)[:4]}"
        elif isinstance(wanted, str) and isinstance(found, str):
            continue
        elif wanted != found:
            yield f"{key}: {found} instead of {wanted}"


def shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}{list(value.shape)}{'+' if value.requires_grad else ''}"
    return "[" + ", ".join(map(shown, value)) + "]" if isinstance(value, list | tuple) else repr(value)


def compare(info: Any, sample: Any, linked: bool, mode: bool = False) -> tuple[str, str]:
    """(kind of outcome, what differs); `mode`: ours is made of aten operators, under a dispatch mode that only calls them."""
    args, kwargs = [sample.input, *sample.args], dict(sample.kwargs)
    function = resolve(info.name)
    if not callable(function):
        return "absent", ""
    try:
        theirs = second(torch, info.op, args, kwargs, linked)
    except Exception:
        return "oracle refuses", ""
    if not theirs:
        return "no gradient", ""
    try:
        given = (moved(args), moved(kwargs))
        with BaseTorchDispatchMode() if mode else nullcontext():
            ours = second(rushlight, function, *given, linked)
    except Exception as error:
        return "error", f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    wrong = sorted(differences(theirs, ours))
    return ("differs", "; ".join(wrong)) if wrong else ("same", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=".")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--mode", action="store_true", help="ours under a dispatch mode, made of aten operators")
    parser.add_argument("--compiled", action="store_true", help="ours compiled beside ours, bit for bit")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for info in op_db:
        if not re.search(options.only, info.name) or UNDEFINED.search(info.name) or not info.supports_autograd:
            continue
        if DTYPE not in info.supported_backward_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        samples = list(info.sample_inputs("cpu", DTYPE, requires_grad=True))
        told: set[str] = set()
        for sample in samples[:: max(1, len(samples) // options.samples)]:
            for linked in (False,) if options.compiled else (False, True):
                kind, wrong = (
                    compare_compiled(info, sample) if options.compiled else compare(info, sample, linked, options.mode)
                )
                counts[kind] += 1
                told_of = re.sub(r"[-0-9. e\]\[]+", "", wrong)
                if wrong and told_of not in told:
                    told.add(told_of)
                    given = ", ".join(
                        [
                            shown(sample.input),
                            *map(shown, sample.args),
                            *[f"{k}={shown(v)}" for k, v in sample.kwargs.items()],
                        ]
                    )
                    print(f"{info.name} {info.variant_test_name} ({given}) linked={linked}: {wrong}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
