"""Change what an operator may have saved, then go backward: its gradient must be right, or backward must raise.

    python tools/sweeps/changed_in_place.py [--only REGEX] [--samples 3]

PyTorch (which must be installed) says which calls there are: its own samples, in float64.  For every result and every tensor argument
of a call the values are overwritten after the forward, under `no_grad`, in PyTorch and here.  A gradient that differs from that of the unchanged call
is printed as wrong.  The last lines count what both did; `--list` names the calls where rushlight has the right gradient and PyTorch raises, and the
other way round.
"""

from __future__ import annotations

import argparse
import itertools
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import rushlight

RANDOM = re.compile(
    r"dropout|rrelu|bernoulli|multinomial|normal$|uniform|rand|exponential|cauchy|geometric|log_normal|empty|fractional|alpha_drop|multi_head_attention_forward"
)


def found(library: Any, name: str) -> Any:
    """The function with a dotted name, or the method."""
    at = library
    for part in name.split("."):
        at = getattr(at, part, None)
        if at is None:
            return getattr(library.Tensor, name, None)
    return at


def moved(value: Any, library: Any, leaves: list[Any]) -> Any:
    """A value of PyTorch's with fresh tensors of `library`; those are noted."""
    if isinstance(value, torch.Tensor):
        held = value.detach()
        made = (
            held.clone()
            if library is torch
            else rushlight.from_numpy(np.array(held.resolve_conj().resolve_neg().numpy()))
        )
        if value.requires_grad:
            made.requires_grad_()
        leaves.append(made)
        return made
    if isinstance(value, torch.dtype):
        return value if library is torch else getattr(rushlight, str(value).split(".")[-1])
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(moved(v, library, leaves) for v in value) if type(value) in (list, tuple) else value
    if isinstance(value, torch.Size):
        return tuple(value)
    return value


def tensors(made: Any, library: Any) -> list[Any]:
    """The tensors in a result."""
    if isinstance(made, library.Tensor):
        return [made]
    return [t for v in made for t in tensors(v, library)] if isinstance(made, (list, tuple)) else []


def overwrite(x: Any, library: Any) -> None:
    """Other values, in place."""
    with library.no_grad():
        if x.dtype.is_floating_point or x.dtype.is_complex:
            x.copy_(x * -1.7 + 0.3)
        elif x.dtype is library.bool:
            x.logical_not_()
        else:
            x.zero_()


def gradients(library: Any, function: Any, sample: Any, change: tuple[str, int] | None) -> Any:
    """The gradients of one call as arrays, the class of the exception, or None where there is nothing to change or to differentiate."""
    leaves: list[Any] = []
    args = [moved(v, library, leaves) for v in (sample.input, *sample.args)]
    kwargs = {k: moved(v, library, leaves) for k, v in sample.kwargs.items()}
    outs = tensors(function(*args, **kwargs), library)
    roots = [o for o in outs if o.requires_grad]
    wanted = [x for x in leaves if x.requires_grad]
    if not roots or not wanted:
        return None
    if change is not None:
        which = outs if change[0] == "result" else leaves
        if change[1] >= len(which):
            return None
        overwrite(which[change[1]], library)
    try:
        seeds = [library.ones_like(o) for o in roots]
        made = library.autograd.grad(roots, wanted, seeds, allow_unused=True)
    except RuntimeError as error:
        return (
            "raises"
            if "modified by an inplace" in str(error) or "version" in str(error)
            else f"raises {str(error)[:80]}"
        )
    return [
        None
        if g is None
        else np.array(
            g.detach().resolve_conj().resolve_neg().to_dense().numpy()
            if library is torch
            else g.detach().to_dense().numpy()
        )
        for g in made
    ]


def same(a: Any, b: Any) -> bool:
    """Whether two lists of gradients agree; none is zero."""
    for x, y in zip(a, b, strict=True):
        if (x is None) != (y is None):
            known = y if x is None else x
            if np.any(known):
                return False
        elif x is not None and not (x.shape == y.shape and np.allclose(x, y, rtol=1e-6, atol=1e-8, equal_nan=True)):
            return False
    return True


def judged(library: Any, function: Any, sample: Any, change: tuple[str, int], whole: Any) -> str | None:
    """ "right", "wrong", "raises" or None."""
    made = gradients(library, function, sample, change)
    if made is None or isinstance(made, str):
        return made
    return "right" if same(made, whole) else "wrong"


def calls(only: str, limit: int) -> Iterator[tuple[str, Any, Any, Any]]:
    """(name, PyTorch's function, ours, sample)"""
    for info in op_db:
        name = info.name
        if not re.search(only, name) or RANDOM.search(name) or not info.supports_autograd:
            continue
        theirs, ours = found(torch, name), found(rushlight, name)
        if theirs is None or ours is None:
            continue
        dtype = torch.float64 if torch.float64 in info.dtypes else None
        if dtype is None:
            continue
        try:
            yield from (
                (name, theirs, ours, s)
                for s in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=True), limit)
            )
        except Exception as error:
            print(f"{name}: no samples: {error}")


def main() -> None:
    """Run all calls and print what is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[tuple[str, str]] = Counter()
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, theirs, ours, sample in calls(options.only, options.samples):
        try:
            wholes = [gradients(lib, f, sample, None) for lib, f in ((torch, theirs), (rushlight, ours))]
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:100]}")
            continue
        if any(w is None or isinstance(w, str) for w in wholes):
            continue
        for change in ((kind, k) for kind in ("result", "argument") for k in range(8)):
            try:
                first, second = (
                    judged(lib, f, sample, change, w)
                    for lib, f, w in zip((torch, rushlight), (theirs, ours), wholes, strict=True)
                )
            except Exception as error:
                print(f"{name} {change}: {type(error).__name__}: {str(error)[:100]}")
                continue
            if first is None and second is None:
                continue
            counts[str(first), str(second)] += 1
            names[str(first), str(second)].add(f"{name} ({change[0]} {change[1]})")
            if second not in ("right", "raises") or first not in ("right", "raises"):
                print(f"{name}, {change[0]} {change[1]}: PyTorch {first}, rushlight {second}", flush=True)
    for (first, second), count in sorted(counts.items()):
        print(f"PyTorch {first}, rushlight {second}: {count} calls")
        if options.list and first != second:
            print("   ", ", ".join(sorted(names[first, second])))


if __name__ == "__main__":
    main()
