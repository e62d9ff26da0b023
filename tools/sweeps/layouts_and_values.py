"""PyTorch's operator samples on other memory layouts and special values, beside PyTorch.

    python tools/sweeps/layouts_and_values.py [--only REGEX] [--dtypes float32,int64] [--samples 3] [--rounds 2] [--seed 0] [--values]
                                              [--forms function,out,inplace,overlap]

Every tensor of a sample is rebuilt in a layout drawn at random (transposed memory, every second element, an odd offset, one row expanded over a
dimension, channels last); with `--values` some elements become infinite, NaN, huge, tiny or the ends of their type.  The call runs in both
libraries as a function, with `out=` (strided, of another dtype, or an argument itself), in place, and on memory that overlaps.  Printed is the
first call of each kind whose dtype, shape, strides, values or class of error differ (`--shown` for more).  Operators run in a child process each, which
a signal may end.  The draw depends on the seed, the operator and the dtype alone.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_flatten, tree_map

import rushlight

DTYPES = "float32,float64,bfloat16,float16,complex64,int64,int32,uint8,bool"
LAYOUTS = ("as it is", "transposed", "stepped", "offset", "expanded", "channels last")
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2, "complex64": 2e-4, "complex128": 1e-9}
RANDOM = re.compile(
    r"rand|dropout|bernoulli|multinomial|normal|cauchy|exponential|geometric|uniform|^empty|new_empty|resize|lowrank|lobpcg|rrelu|fractional|gumbel"
)
# Sums of products whose order decides what overflows.
PRODUCTS = re.compile(
    r"mm$|mv$|^add(r|cdiv|cmul)$|linalg|matmul|cholesky|^(svd|qr|lu|pinverse|cov|corrcoef|geqrf|ormqr|inner|dot|vdot|tensordot|einsum|cdist)|conv|linear|lstm|attention"
)


# ***** arguments *****


def special(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """The tensor with some elements that are extreme for its dtype."""
    flat = x.clone(memory_format=torch.contiguous_format).reshape(-1)
    if x.is_floating_point():
        info = torch.finfo(x.dtype)
        pool: list[Any] = [
            float("inf"),
            float("-inf"),
            float("nan"),
            0.0,
            -0.0,
            info.max,
            info.min,
            info.tiny,
            info.tiny / 4,
            1.0,
            -1.0,
        ]
    elif x.is_complex():
        parts = [float("inf"), float("nan"), 0.0, -0.0, 1.0, -2.0]
        pool = [complex(a, b) for a in parts for b in parts]
    elif x.dtype is torch.bool:
        return x
    else:
        ends = torch.iinfo(x.dtype)
        pool = [ends.min, ends.max, ends.min + 1, 0, 1, ends.max // 2]
    for i in range(flat.numel()):
        if draw.random() < 0.3:
            flat[i] = draw.choice(pool)
    return flat.reshape(x.shape)


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values on memory of the layout; the tensor itself where it has too few dimensions."""
    if layout == "transposed" and x.dim() > 1:
        order = list(range(x.dim()))[::-1]
        return x.permute(order).contiguous().permute(order)
    if layout == "stepped" and x.dim():
        room = x.new_zeros([2 * n + 1 for n in x.shape])
        view = room[tuple(slice(1, None, 2) for _ in x.shape)]
        view.copy_(x)
        return view
    if layout == "offset":
        room = x.new_zeros(x.numel() + 3)
        view = room[3:].view(x.shape)
        view.copy_(x)
        return view
    if layout == "expanded" and x.dim() and x.shape[0]:
        return x[:1].clone().expand(x.shape)
    if layout == "channels last" and x.dim() in (4, 5):
        return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    return x


def rebuilt(x: torch.Tensor) -> Any:
    """A tensor of ours with the values, dtype, strides and offset of PyTorch's."""
    storage = x.untyped_storage()
    count = storage.nbytes() // x.element_size()
    whole = torch.empty(0, dtype=x.dtype).set_(storage, 0, (count,), (1,)).clone()
    ours = rushlight.from_numpy(whole.view(torch.uint8).numpy().copy()).view(getattr(rushlight, str(x.dtype).split(".")[-1])) if count else rushlight.empty(
        0, dtype=getattr(rushlight, str(x.dtype).split(".")[-1])
    )  # fmt: skip
    return ours.as_strided(tuple(x.shape), tuple(x.stride()), x.storage_offset())


def translated(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError("no plain tensor")
        plain = value.detach()
        return rebuilt(plain.resolve_conj().resolve_neg())
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return getattr(rushlight, str(value).split(".")[-1])
    if isinstance(value, torch.device):
        return rushlight.device(str(value))
    if isinstance(value, torch.Generator):
        raise TypeError("a generator")
    return value


def copied(args: Any) -> Any:
    """Both libraries' arguments, on memory of their own."""

    def own(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        plain = x.detach().resolve_conj().resolve_neg()
        storage = plain.untyped_storage().clone()
        return torch.empty(0, dtype=x.dtype).set_(storage, plain.storage_offset(), plain.shape, plain.stride())

    theirs = tree_map(own, args)
    return theirs, tree_map(translated, theirs)


# ***** results *****


def described(x: Any) -> Any:
    return (str(x.dtype).split(".")[-1], tuple(x.shape), tuple(x.stride()) if x.numel() > 1 else "any")


def numbers_of(x: Any) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        whole = torch.empty(x.numel(), dtype=x.dtype)
        whole.view(x.shape).copy_(x.detach())
        return whole
    flat = rushlight.empty(x.numel(), dtype=x.dtype)
    flat.view(x.shape).copy_(x.detach())
    dtype = getattr(torch, str(flat.dtype).split(".")[-1])
    if not flat.numel():
        return torch.empty(0, dtype=dtype)
    return torch.from_numpy(flat.view(rushlight.uint8).numpy().copy()).view(dtype)


def values_differ(theirs: torch.Tensor, ours: torch.Tensor) -> str:
    name = str(theirs.dtype).split(".")[-1]
    if name not in TOLERANCE:
        same = theirs.view(torch.uint8) == ours.view(torch.uint8) if name != "bool" else theirs == ours
        return "" if bool(same.all()) else "values"
    if theirs.is_complex():  # which part of a product is NaN depends on how it is multiplied
        finite = torch.view_as_real(theirs).isfinite().all(-1)
        if not torch.equal(finite, torch.view_as_real(ours).isfinite().all(-1)):
            return "NaN"
        theirs, ours = theirs[finite], ours[finite]
        theirs, ours = torch.view_as_real(theirs).reshape(-1), torch.view_as_real(ours).reshape(-1)
    a, b = theirs.double(), ours.double()
    if not torch.equal(a.isnan(), b.isnan()):
        return "NaN"
    if not torch.equal(torch.where(a.isinf(), a, 0.0).nan_to_num(), torch.where(b.isinf(), b, 0.0).nan_to_num()):
        return "infinite"
    finite = a.isfinite()
    a, b = a[finite], b[finite]
    if not a.numel():
        return ""
    tolerance = TOLERANCE[name]
    return (
        ""
        if bool(
            (
                (a - b).abs()
                <= tolerance * (1 + a.abs().clamp(max=1e300)) + tolerance * a.abs().max().clamp(max=1e30) * 0.1
            ).all()
        )
        else "values"
    )


def difference(theirs: Any, ours: Any) -> str:
    """What differs between two results; empty where nothing does."""
    if isinstance(theirs, str) or isinstance(ours, str):
        if isinstance(theirs, str) and isinstance(ours, str):
            return "" if theirs.split(":")[0] == ours.split(":")[0] else "class"
        return "refuses" if isinstance(ours, str) else "accepts"
    ours_flat = leaves(ours)
    theirs_flat = leaves(theirs)
    if len(theirs_flat) != len(ours_flat):
        return "structure"
    for a, b in zip(theirs_flat, ours_flat, strict=True):
        if isinstance(a, torch.Tensor) != isinstance(b, rushlight.Tensor):
            return "structure"
        if not isinstance(a, torch.Tensor):
            if a != b and not (a != a and b != b) and str(a).split(".")[-1] != str(b).split(".")[-1]:
                return "value"
            continue
        if a.layout is not torch.strided:
            continue
        one, other = described(a), described(b)
        for what, p, q in zip(("dtype", "shape", "strides"), one, other, strict=True):
            if p != q:
                return what
        if found := values_differ(numbers_of(a), numbers_of(b)):
            return found
    return ""


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [x for v in value for x in leaves(v)]
    return [value]


def outcome(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:160]}"


# ***** calls *****


def function_of(info: Any) -> Any:
    """Our function under the name of PyTorch's; the method where the name is one's."""
    if info.name in ("__getitem__",) or not info.name:
        return None
    found: Any = rushlight
    for part in info.name.split("."):
        found = getattr(found, part, None)
        if found is None:
            method = getattr(rushlight.Tensor, info.name, None)
            return (lambda x, *a, **k: getattr(x, info.name)(*a, **k)) if method is not None else None
    return found


def theirs_of(info: Any) -> Any:
    found: Any = torch
    for part in info.name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return lambda x, *a, **k: getattr(x, info.name)(*a, **k)
    return found


def shown(args: Any) -> str:
    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return f"<{str(x.dtype)[6:]} {tuple(x.shape)} {tuple(x.stride())} {x.flatten().tolist() if x.numel() < 7 else ''}>"
        return x

    return str(tree_map(one, args))[:420]


class Sweep:
    def __init__(self, info: Any, dtype: torch.dtype, options: argparse.Namespace) -> None:
        self.info, self.dtype, self.options = info, dtype, options
        self.draw = random.Random(f"{options.seed}:{info.name}:{info.variant_test_name}:{dtype}")
        self.theirs, self.ours = theirs_of(info), function_of(info)
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        torch.manual_seed(self.options.seed)
        samples = list(self.info.sample_inputs_func(self.info, "cpu", self.dtype, False))
        samples = [
            s
            for s in samples
            if all(x.numel() < 3000 for x in tree_flatten((s.input, s.args))[0] if isinstance(x, torch.Tensor))
        ]
        for sample in self.draw.sample(samples, min(len(samples), self.options.samples)):
            for _ in range(self.options.rounds):
                args = tree_map(self.changed, ((sample.input, *sample.args), dict(sample.kwargs)))
                for form in self.options.forms.split(","):
                    self.compare(form, args)

    def changed(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            return x
        x = x.detach()
        if self.options.values and x.dtype is self.dtype and not PRODUCTS.search(self.info.name):
            x = special(x, self.draw)
        return laid_out(x, self.draw.choice(LAYOUTS))

    def compare(self, form: str, args: Any) -> None:
        calls = getattr(self, "form_" + form)(args)
        if calls is None:
            return
        (theirs, their_args), (ours, our_args) = calls
        a = outcome(theirs, *their_args[0], **their_args[1])
        if isinstance(a, str) and a.startswith(("NotImplementedError", "AttributeError")):
            return
        b = outcome(ours, *our_args[0], **our_args[1])
        self.seen["calls"] += 1
        kind = difference(a, b)
        if form != "function" and not kind and not isinstance(a, str):
            kind = difference(
                list(their_args[0]) + [their_args[1].get("out")], list(our_args[0]) + [our_args[1].get("out")]
            )
            kind = kind and f"{kind} of an argument"
        if kind:
            self.seen[kind] += 1
            if self.seen[kind] <= self.options.shown:
                name = self.info.name + (f" ({self.info.variant_test_name})" if self.info.variant_test_name else "")
                print(
                    f"{kind}: {name} {str(self.dtype)[6:]} {form} {shown(args)}\n    theirs: {brief(a)}\n    ours:   {brief(b)}",
                    flush=True,
                )

    def form_function(self, args: Any) -> Any:
        theirs, ours = copied(args)
        return (self.theirs, theirs), (self.ours, ours)

    def form_out(self, args: Any) -> Any:
        """`out=` of another layout, of another dtype, or the first argument."""
        if not self.info.supports_out:
            return None
        theirs, _ = copied(args)
        result = outcome(self.theirs, *theirs[0], **theirs[1])
        if not isinstance(result, torch.Tensor):
            return None
        kind = self.draw.choice(("stepped", "transposed", "dtype", "size", "empty", "self"))
        out = torch.zeros_like(result, memory_format=torch.contiguous_format)
        if kind == "dtype":
            out = out.to(self.draw.choice((torch.float64, torch.bfloat16, torch.int64, torch.complex64, torch.bool)))
        elif kind == "size":
            out = torch.zeros([*out.shape, 2], dtype=out.dtype)
        elif kind == "empty":
            out = torch.zeros(0, dtype=out.dtype)
        else:
            out = laid_out(out, kind)
        if (
            kind == "self"
            and isinstance(args[0][0], torch.Tensor)
            and isinstance(self.info, (UnaryUfuncInfo, BinaryUfuncInfo))
        ):
            theirs, ours = copied(args)
            return (self.theirs, (theirs[0], {**theirs[1], "out": theirs[0][0]})), (
                self.ours,
                (ours[0], {**ours[1], "out": ours[0][0]}),
            )
        theirs, ours = copied((args[0], {**args[1], "out": out}))
        return (self.theirs, theirs), (self.ours, ours)

    def form_inplace(self, args: Any) -> Any:
        method = self.info.inplace_variant
        name = getattr(method, "__name__", None)
        if method is None or not isinstance(args[0][0], torch.Tensor) or not name or not hasattr(torch.Tensor, name):
            return None
        theirs, ours = copied(args)
        return (lambda x, *a, **k: getattr(x, name)(*a, **k), theirs), (
            lambda x, *a, **k: getattr(x, name)(*a, **k),
            ours,
        )

    def form_overlap(self, args: Any) -> Any:
        """In place, with another argument that shares memory: shifted by one, or transposed."""
        method = self.info.inplace_variant
        name = getattr(method, "__name__", None)
        tensors = [i for i, x in enumerate(args[0]) if i and isinstance(x, torch.Tensor)]
        if method is None or not tensors or not name or not hasattr(torch.Tensor, name):
            return None
        first = args[0][0]
        kind = self.draw.choice(("same", "shifted", "transposed"))
        n = first.numel()

        def shared(t: Any, flat: Any) -> list[Any]:
            shape, order = tuple(first.shape), list(range(first.dim()))[::-1]
            x = flat[:n].view(shape)
            if kind == "shifted":
                y = flat[1 : n + 1].view(shape)
            elif kind == "transposed" and len(set(shape)) <= 1:
                y = x.permute(order)
            else:
                y = x
            return [x, y]

        theirs, ours = copied((list(args[0]), args[1]))
        flat = torch.zeros(n + 1, dtype=first.dtype)
        flat[:n] = first.reshape(-1)
        theirs[0][0], theirs[0][tensors[0]] = shared(torch, flat.clone())
        ours[0][0], ours[0][tensors[0]] = shared(rushlight, rebuilt(flat))
        return (lambda x, *a, **k: getattr(x, name)(*a, **k), theirs), (
            lambda x, *a, **k: getattr(x, name)(*a, **k),
            ours,
        )


def brief(x: Any) -> str:
    def one(v: Any) -> str:
        if not isinstance(v, (torch.Tensor, rushlight.Tensor)):
            return str(v)
        values = v.detach().flatten()[:24].tolist() if v.layout in (torch.strided, rushlight.strided) else "..."
        return f"{described(v)} {values}"

    return (x if isinstance(x, str) else " | ".join(one(v) for v in leaves(x)))[:600]


def in_child(work: Callable[[], None], limit: int) -> str:
    """Runs it in a process of its own; what ended it, empty where it ended by itself."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(limit)
        try:
            work()
        except BaseException as error:  # a child says all that it meets
            print("ERROR", type(error).__name__, str(error)[:300], flush=True)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return "" if status == 0 else f"ended with status {status}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default=DTYPES)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=1)
    parser.add_argument("--limit", type=int, default=60, help="seconds for an operator and a dtype")
    parser.add_argument("--forms", default="function")
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--part", default="0/1")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    part, parts = map(int, options.part.split("/"))
    chosen = [i for i in op_db if not RANDOM.search(i.name) and re.search(options.only, i.name)][part::parts]
    for info in chosen:
        if function_of(info) is None:
            continue

        def work(info: Any = info) -> None:
            for name in options.dtypes.split(","):
                dtype = getattr(torch, name)
                if dtype in info.supported_dtypes("cpu"):
                    Sweep(info, dtype, options).run()

        if ended := in_child(work, options.limit):
            print(f"{info.name}: {ended}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
