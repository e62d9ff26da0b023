"""Wrong and unusual calls of everything public, beside PyTorch: which are taken, with what result, and which are refused with what class.

What is left to differ is listed by cause in `unusual_calls_kept.txt`.

    python tools/sweeps/unusual_calls.py [--only REGEX] [--groups functions,methods,inplace,written,modules] [--out FILE] [--extremes]

A *base call* is one that works: a sample of PyTorch's operator database, of its module database, or a line of `BASES`.  Each is changed in one
place at a time (another type, dtype, rank, size, number, keyword, `out=`), as text, so that every call that ends otherwise is printed as an
expression that can be pasted.  Kinds of disagreement:

    refuses   PyTorch takes it and we do not
    accepts   we take what PyTorch refuses
    class     both refuse, with other classes of exception
    result    both take it; dtype, shape, strides, requires_grad or values differ
    crash     the call ended the process; `library` says whose

With `--extremes` only the whole numbers of a call are changed, to ones around 2**31, 2**32, 2**62, 2**63 and 2**64, each call in two processes of
its own with bounded memory and time.  What crashes PyTorch is left out; where both refuse, the class of the error may be another one.

Needs `torch`, the one that is compared with.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import pickle
import re
import resource
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import rushlight

KINDS = ("refuses", "accepts", "class", "result")
DTYPES = ("bool", "int64", "int32", "uint8", "float16", "bfloat16", "float64", "complex64", "float8_e4m3fn")


class Base:
    """A call that works: text of the callee, of its arguments, and the tensors that they name."""

    def __init__(
        self, name: str, callee: str, args: list[str], kwargs: dict[str, str], tensors: dict[str, Any]
    ) -> None:
        self.name, self.callee, self.args, self.kwargs, self.tensors = name, callee, args, kwargs, tensors

    def text(
        self, args: list[str] | None = None, kwargs: dict[str, str] | None = None, callee: str | None = None
    ) -> str:
        args, kwargs = self.args if args is None else args, self.kwargs if kwargs is None else kwargs
        return f"{callee or self.callee}({', '.join([*args, *[f'{k}={v}' for k, v in kwargs.items()]])})"


# ***** what stands for an argument *****


def evaluated(text: str, space: dict[str, Any]) -> Any:
    """What a text that this program made says."""
    return eval(text, space)  # noqa: S307


def words_of(value: Any, tensors: dict[str, Any]) -> str:
    """An argument as text; tensors are named, and kept in `tensors`."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.numel() > 4000:
            raise ValueError
        name = f"s{len(tensors)}"
        tensors[name] = value.detach()
        return name
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return "t." + str(value).split(".")[-1]
    if isinstance(value, torch.device):
        return f"t.device('{value}')"
    if isinstance(value, torch.Size):
        return repr(tuple(value))
    if type(value) is list:
        return "[" + ", ".join(words_of(v, tensors) for v in value) + "]"
    if type(value) is tuple:
        return "(" + ", ".join(words_of(v, tensors) for v in value) + ("," if len(value) == 1 else "") + ")"
    if type(value) is float and value - value != 0:
        return f"float('{value}')"
    if value is None or type(value) in (bool, int, float, complex, str, slice):
        return repr(value)
    if isinstance(value, torch.Generator):
        return "t.Generator()"
    raise ValueError


def other_tensors(x: str, value: Any) -> Iterator[str]:
    here = str(value.dtype).split(".")[-1]
    for dtype in DTYPES:
        if dtype != here:
            yield f"{x}.real.to(t.{dtype})" if value.is_complex() and dtype != "complex64" else f"{x}.to(t.{dtype})"
    yield f"{x}[None]"
    yield f"{x}.flatten()[0]" if value.numel() else f"{x}.sum()"
    if value.dim():
        yield from (f"{x}[0]", f"{x}[:0]", f"t.cat([{x}, {x}], -1)") if value.shape[0] else (f"{x}.reshape(-1)",)
        yield f"{x}[..., :0]"
    if value.dim() > 1:
        yield from (
            f"{x}.mT",
            f"{x}[0][None].expand({x}.shape)" if value.shape[0] else f"{x}[None]",
            f"t.cat([{x}, {x}, {x}], 0)",
        )
    if value.dim() == 4:
        yield from (f"{x}.contiguous(memory_format=t.channels_last)", f"{x}[:, :1].contiguous(memory_format=t.channels_last)",
                    f"{x}[:0].contiguous(memory_format=t.channels_last)")  # fmt: skip
    yield f"{x}.reshape({(1,) * (7 - value.dim()) + tuple(value.shape)})"
    if value.is_floating_point() or value.is_complex():
        yield f"{x}.clone().requires_grad_()"
    flat = value.flatten()[:3]
    yield from (
        "None",
        "'abc'",
        "2",
        "1.5",
        "True",
        "1j",
        repr(flat.tolist()),
        "np.float32(1.5)",
        "np.ones(2)",
        f"[{x}, {x}]",
        f"({x},)",
    )


def other_values(text: str, value: Any) -> Iterator[str]:
    """Texts to put in the place of an argument."""
    if isinstance(value, torch.Tensor):
        yield from other_tensors(text, value)
    elif isinstance(value, bool):
        yield from (
            repr(not value),
            "'abc'",
            "None",
            "1",
            "0",
            "2.5",
            "[True]",
            "t.tensor(True)",
            "np.bool_(True)",
            "t.tensor([True, False])",
        )
    elif isinstance(value, int):
        yield from ("-1", "0", "1", "100", "-100", "1.5", f"{value}.0", "'abc'", "None", "True", f"({value},)", f"[{value}, {value}]", "1j", "2**70", f"t.tensor({value})",
                    f"t.tensor([{value}])", "t.tensor(1.5)", "t.tensor(True)", "t.tensor([1, 1])", f"np.int64({value})", "np.float32(1.5)", f"np.array({value})",
                    f"t.tensor({value}, dtype=t.int32)")  # fmt: skip
    elif isinstance(value, float):
        yield from ("'abc'", "None", "-1.0", "0.0", "float('nan')", "float('inf')", "2", "True", "1j", f"[{text}]", f"t.tensor({text})", f"t.tensor([{text}, {text}])",
                    f"np.float64({text})", "np.float32(0.5)", "np.int64(1)", "t.tensor(1)", "2**70", f"t.tensor({text}, requires_grad=True)")  # fmt: skip
    elif isinstance(value, complex):
        yield from ("'abc'", "None", "1", "1.5", "[1j]", "t.tensor(1j)", "np.complex64(1j)")
    elif isinstance(value, str):
        yield from ("'abc'", "''", "None", "1", "True", f"({text},)", f"{text}.upper()")
    elif isinstance(value, torch.dtype):
        yield from ("t.bool", "t.int64", "t.int32", "t.complex64", "t.float16", "t.float64", "t.uint16", "t.float8_e4m3fn", "'float32'", "None", "float", "int", "bool",
                    "complex", "3", "np.float32", "np.dtype('float32')")  # fmt: skip
    elif isinstance(value, (list, tuple)):
        items = list(value)
        yield from ("None", "'abc'", "5", "1.5", "()", "[]", "True", "t.tensor([1, 1])", "np.array([1, 1])", "(1, 1, 1, 1, 1, 1, 1)", "{0: 1}", "iter([1])", "range(2)", "[None]",
                    "['a']", "[1.5, 1.5]", "[True]", "t.Size([1, 1])")  # fmt: skip
        yield from (f"{text} + {text}", f"{text}[:-1]", f"list({text})", f"tuple({text})")
        if items and all(type(v) is int for v in items):
            yield from (repr([-3] * len(items)), repr([100] * len(items)), repr([0] * len(items)), repr([float(v) for v in items]), f"[np.int64(v) for v in {text}]",
                        f"[t.tensor(v) for v in {text}]")  # fmt: skip
        if items and isinstance(items[0], torch.Tensor):
            first = f"{text}[0]"
            for other in other_tensors(first, items[0]):
                yield f"[{other}, *{text}[1:]]"
    elif value is None:
        yield from ("'abc'", "1.5", "True", "1", "t.ones(2)")


EXTREMES = (
    "2**31",
    "-2**31-1",
    "2**32",
    "2**62",
    "-2**62",
    "2**63-1",
    "-2**63",
    "2**63",
    "-2**63-1",
    "2**64",
    "2**64+1",
    "2**70",
)


def extreme_values(text: str, value: Any) -> Iterator[str]:
    """The same argument with one of its numbers at or beyond what 32 or 64 bits hold."""
    if type(value) in (int, float):
        yield from EXTREMES
    elif isinstance(value, (list, tuple)) and value and all(type(v) is int for v in value):
        for place in range(len(value)):
            for other in EXTREMES:
                yield "(" + "".join(f"{other if i == place else v}, " for i, v in enumerate(value)) + ")"


def extremes(base: Base, skip: int = 0) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The base call with extreme numbers in one place, those that were left out included."""
    space = {**names(torch), **base.tensors}
    for i, text in enumerate(base.args):
        for other in extreme_values(text, evaluated(text, space)):
            yield [*base.args[:i], other, *base.args[i + 1 :]], base.kwargs
    for key, text in base.kwargs.items():
        for other in extreme_values(text, evaluated(text, space)):
            yield base.args, {**base.kwargs, key: other}
    for key in INTEGERS.get(base.name.rpartition(".")[2], ()):
        if key not in base.kwargs:
            for other in EXTREMES:
                yield base.args, {**base.kwargs, key: other}


_OTHER_WORDS = {
    "dim": ("axis", "dims"),
    "keepdim": ("keepdims",),
    "input": ("self", "x", "a"),
    "self": ("input", "x", "a"),
    "other": ("x2", "y", "b"),
    "dims": ("dim", "axis"),
}


def signatures() -> dict[str, list[list[str]]]:
    """Names of the positional arguments of every overload, by operator."""
    found: dict[str, list[list[str]]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and not any(a.is_out for a in schema.arguments):
            found.setdefault(schema.name[6:], []).append([a.name for a in schema.arguments])
    return found


_ENUMS = ("dtype", "layout", "memory_format", "output_dtype", "out_dtype")  # ints in schemas alone


def integers() -> dict[str, list[str]]:
    """Names of the arguments of every operator that are an int or some, and have a default."""
    found: dict[str, dict[str, None]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            names = [
                a.name
                for a in schema.arguments
                if a.has_default_value() and a.name not in _ENUMS and re.search(r"\bint\b", str(a.type))
            ]
            found.setdefault(schema.name[6:], {}).update(dict.fromkeys(names))
    return {name: list(names) for name, names in found.items()}


SIGNATURES = signatures()
INTEGERS = integers()


def places(base: Base) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The base call with another argument in one place."""
    space = {**names(torch), **base.tensors}
    for i, text in enumerate(base.args):
        for other in other_values(text, evaluated(text, space)):
            yield [*base.args[:i], other, *base.args[i + 1 :]], base.kwargs
    for key, text in base.kwargs.items():
        for other in other_values(text, evaluated(text, space)):
            yield base.args, {**base.kwargs, key: other}


def keywords(base: Base, skip: int = 0) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Other ways to say the same, and arguments too many or too few."""
    a, k = base.args, base.kwargs
    for declared in SIGNATURES.get(base.name.rpartition(".")[2], ()):
        named = declared[skip:]
        if len(named) < len(a):
            continue
        for i in range(len(a)):
            given = dict(zip(named[i : len(a)], a[i:], strict=False))
            if not given.keys() & k.keys():
                yield a[:i], {**given, **k}
            for other in _OTHER_WORDS.get(named[i], ()):
                yield a[:i], {other: a[i], **dict(zip(named[i + 1 : len(a)], a[i + 1 :], strict=False)), **k}
        if a:
            yield a, {**k, named[len(a) - 1]: a[-1]}
    for key in k:
        for other in _OTHER_WORDS.get(key, ()):
            yield a, {(other if q == key else q): v for q, v in k.items()}
    for i in range(1, len(a) + 1):
        yield a[: len(a) - i], k
    if k:
        yield [*a, *k.values()], {}
    for extra in ("None", "'abc'", "t.ones(2)", "1", "True"):
        yield [*a, extra], k
    for key, value in (("nonsense", "1"), ("device", "'nonsense'"), ("device", "'meta'"), ("dtype", "'nonsense'"), ("dtype", "t.float64"), ("generator", "3"), ("keepdim", "1"),
                       ("dim", "None"), ("requires_grad", "True"), ("layout", "t.strided")):  # fmt: skip
        if key not in k:
            yield a, {**k, key: value}


_OUTS = (
    "3", "'abc'", "None", "t.empty(0)", "t.empty(0, dtype=t.float64)", "t.empty(0, dtype=t.uint8)", "t.empty(0, dtype=t.bool)", "t.empty(0, dtype=t.int64)",
    "t.empty(0, dtype=t.complex64)", "t.empty(0, dtype=t.bfloat16)", "t.empty(3, 3)", "t.empty(1).expand(6)", "t.empty(0, requires_grad=True)",
    "t.empty(0, device='meta')", "(t.empty(0), t.empty(0))", "(t.empty(0), t.empty(0, dtype=t.int64))", "[t.empty(0)]", "np.empty(3)",
)  # fmt: skip


def outs(base: Base) -> Iterator[tuple[list[str], dict[str, str]]]:
    for text in _OUTS:
        yield base.args, {**base.kwargs, "out": text}
    first = next((a for a in base.args if re.fullmatch(r"s\d+", a)), None)
    if first is not None:
        yield base.args, {**base.kwargs, "out": first}
        yield base.args, {**base.kwargs, "out": f"{first}.clone().requires_grad_()"}


_TARGETS = (
    "{}.clone()", "{}.clone().requires_grad_()", "{}.clone().requires_grad_().view_as({})", "({}.clone().requires_grad_() * 1)", "{}[:1].expand({}.shape)", "{}.clone().to('meta')",
    "{}.mT.contiguous().mT", "{}[:0]", "{}[None].clone()", *(f"{{}}.to(t.{d})" for d in DTYPES),
)  # fmt: skip


def names(library: Any) -> dict[str, Any]:
    """What the texts may use."""
    return {"t": library, "F": library.nn.functional, "nn": library.nn, "np": np, "Tensor": library.Tensor, "data": library.utils.data, "optim": library.optim,
            "init": library.nn.init}  # fmt: skip


# ***** base calls *****


def find(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


def has(path: str) -> bool:
    try:
        find(torch, path), find(rushlight, path)
    except AttributeError:
        return False
    return True


def samples(info: Any, most: int) -> list[Any]:
    """The richest samples of an operator, of different forms."""
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
        try:
            found = list(info.sample_inputs("cpu", dtype))
        except Exception:  # not of this dtype
            continue
        if not found:
            continue
        found.sort(key=lambda s: -(len(s.args) + len(s.kwargs)))
        forms: dict[Any, Any] = {}
        for s in found:
            first = s.input if isinstance(s.input, torch.Tensor) else None
            if first is not None and (
                first.numel() == 0 or first.numel() > 3000 or first.dim() == 0 and len(found) > 3
            ):
                continue
            forms.setdefault((tuple(type(a) for a in s.args), tuple(sorted(s.kwargs))), s)
        picked = list(forms.values()) or found[:1]
        return picked if len(picked) <= most else [*picked[: most - 1], picked[-1]]
    return []


def operator_bases(pattern: re.Pattern[str], groups: set[str], most: int) -> Iterator[tuple[str, Base]]:
    from torch.testing._internal.common_methods_invocations import op_db

    done = set()
    for info in op_db:
        if info.name in done or not pattern.search(info.name) or info.name.startswith(("_", "torch.", "jiterator")):
            continue
        done.add(info.name)
        for sample in samples(info, most):
            tensors: dict[str, Any] = {}
            try:
                args = [words_of(a, tensors) for a in (sample.input, *sample.args)]
                kwargs = {k: words_of(v, tensors) for k, v in sample.kwargs.items()}
            except ValueError:
                continue
            if "functions" in groups and has(info.name):
                yield "function", Base(info.name, "t." + info.name, args, kwargs, tensors)
            word = info.name
            if not isinstance(sample.input, torch.Tensor) or not has("Tensor." + word):
                continue
            if "methods" in groups:
                yield "method", Base(word, f"s0.{word}", args[1:], kwargs, tensors)
            if "inplace" in groups and has("Tensor." + word + "_"):
                yield "inplace", Base(word, f"s0.clone().{word}_", args[1:], kwargs, tensors)


def written_bases(pattern: re.Pattern[str]) -> Iterator[tuple[str, Base]]:
    with open(os.path.join(os.path.dirname(__file__), "unusual_calls.txt")) as file:
        lines = [line for row in file.read().splitlines() if not row.startswith("#") for line in row.split(" | ")]
    for line in filter(None, map(str.strip, lines)):
        call = ast.parse(line, mode="eval").body
        assert isinstance(call, ast.Call), line
        callee = ast.unparse(call.func)
        if not pattern.search(line):
            continue
        args = [ast.unparse(a) for a in call.args]
        kwargs = {str(k.arg): ast.unparse(k.value) for k in call.keywords}
        yield "written", Base(callee, callee, args, kwargs, {})


def module_bases(pattern: re.Pattern[str]) -> Iterator[tuple[str, Base]]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        name = info.module_cls.__name__
        if not pattern.search(name) or not hasattr(rushlight.nn, name):
            continue
        for number, made in enumerate(
            info.module_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=True)
        ):
            if number >= 2:
                break
            tensors: dict[str, Any] = {}
            try:
                make = [words_of(a, tensors) for a in made.constructor_input.args]
                options = {k: words_of(v, tensors) for k, v in made.constructor_input.kwargs.items()}
                base = Base("nn." + name, f"nn.{name}", make, options, tensors)
                yield "constructor", base
                if made.forward_input is not None:
                    args = [words_of(a, tensors) for a in made.forward_input.args]
                    kwargs = {k: words_of(v, tensors) for k, v in made.forward_input.kwargs.items()}
                    yield "forward", Base("nn." + name, base.text(), args, kwargs, tensors)
            except ValueError:
                continue


def calls(form: str, base: Base, extreme: bool = False) -> Iterator[str]:
    yield base.text()
    if extreme:
        for args, kwargs in extremes(base):
            yield base.text(args, kwargs)
        return
    if form == "function":
        for args, kwargs in (*places(base), *keywords(base), *outs(base)):
            yield base.text(args, kwargs)
    elif form == "method":
        for args, kwargs in keywords(base, 1):
            yield base.text(args, kwargs)
    elif form == "inplace":
        for target in _TARGETS:
            yield base.text(callee=target.replace("{}", "s0") + base.callee.removeprefix("s0.clone()"))
    else:
        # Python's own protocol has no keywords
        written = places(base) if "__" in base.callee else (*places(base), *keywords(base))
        for args, kwargs in written:
            yield base.text(args, kwargs)


# ***** what a call ends in *****


def converted(value: Any) -> Any:
    """A tensor of PyTorch's as one of ours."""
    value = value.detach().resolve_conj().resolve_neg()
    if value.device.type == "meta":
        return rushlight.empty_strided(
            tuple(value.shape), value.stride(), dtype=find(rushlight, str(value.dtype)[6:]), device="meta"
        )
    made = rushlight.empty_strided(tuple(value.shape), value.stride(), dtype=find(rushlight, str(value.dtype)[6:]))
    if value.dtype is torch.bfloat16:
        made.copy_(rushlight.tensor(value.float().numpy().copy()))
    elif 0 in value.stride():
        return rushlight.tensor(value.numpy().copy())
    else:
        made.copy_(rushlight.tensor(value.numpy().copy()))
    return made


def described(value: Any, library: Any, arrays: list[Any], depth: int = 0) -> Any:
    """Type, dtype, shape, strides of what was returned; values go to `arrays`."""
    if isinstance(value, library.Tensor):
        if str(value.layout) != "torch.strided":
            return ["sparse", str(value.dtype), list(value.shape)]
        try:
            if value.device.type != "meta":
                x = value.detach()
                x = x.resolve_conj().resolve_neg() if x.is_complex() or x.is_neg() else x
                arrays.append(
                    (x.float() if "float8" in str(x.dtype) or "bfloat16" in str(x.dtype) else x).numpy().copy()
                )
        except Exception:  # of a dtype that NumPy does not have
            pass
        return [
            "tensor",
            str(value.dtype).replace("rushlight", "torch"),
            list(value.shape),
            list(value.stride()),
            value.requires_grad,
            value.device.type,
        ]
    if isinstance(value, (list, tuple)) and depth < 4:
        return [type(value).__name__, *[described(v, library, arrays, depth + 1) for v in value]]
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if type(value).__name__.lower() in ("dtype", "device"):
        return str(value)
    if isinstance(value, (float, complex)):
        arrays.append(np.array(value))
        return type(value).__name__
    return type(value).__name__


class TooLong(BaseException):
    """A call does not end."""


def _alarm(*_: Any) -> None:
    raise TooLong


def outcome(text: str, tensors: dict[str, Any], library: Any) -> tuple[str, Any, list[Any]]:
    """("ok", description, arrays), or (class, message, [])."""
    library.manual_seed(0)
    np.random.seed(0)
    space = {**names(library), **tensors}
    arrays: list[Any] = []
    signal.setitimer(signal.ITIMER_REAL, 20)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            made = evaluated(text, space)
        return "ok", described(made, library, arrays), arrays
    except TooLong:
        return "TooLong", "", []
    except Exception as error:
        return type(error).__name__, str(error)[:300], []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


_UNDEFINED = re.compile(r"empty|random_|resize")


def compare(text: str, tensors: dict[str, Any], ours: dict[str, Any], write: Any) -> dict[str, Any] | None:
    """What differs, or None."""
    write(dict(now=text, library="torch"))
    theirs = outcome(text, {k: v.detach().clone() for k, v in tensors.items()}, torch)
    write(dict(now=text, library="rushlight"))
    return differing(text, theirs, outcome(text, {k: v.clone() for k, v in ours.items()}, rushlight))


def differing(text: str, theirs: tuple[str, Any, list[Any]], ours: tuple[str, Any, list[Any]]) -> dict[str, Any] | None:
    """How two endings of a call differ, or None."""
    a, found_a, arrays_a = theirs
    b, found_b, arrays_b = ours
    kind = ""
    if a == "RuntimeError" and "INTERNAL ASSERT" in found_a:  # PyTorch did not mean to refuse it
        return None
    if a == "ok" != b:
        kind = "refuses"
    elif b == "ok" != a:
        kind = "accepts"
    elif a != b:
        kind = "class"
    elif a == "ok":
        if found_a != found_b:
            kind = "result"
        elif not _UNDEFINED.search(text):
            for x, y in zip(arrays_a, arrays_b, strict=False):
                half = "16" in str(x.dtype) or "float16" in text or "float8" in text
                if (
                    x.shape != y.shape
                    or x.dtype.kind in "fciub"
                    and not np.allclose(x, y, 3e-2 if half else 2e-3, 3e-2 if half else 1e-3, equal_nan=True)
                ):
                    kind, found_a, found_b = "result", f"values {x.ravel()[:4]}", f"values {y.ravel()[:4]}"
                    break
    return dict(kind=kind, call=text, torch=a, ours=b, torch_says=found_a, we_say=found_b) if kind else None


def one(form: str, base: Base, write: Any, only: set[str] | None) -> int:
    """All calls of one base (or `only` some); each that differs is written as a line of JSON."""
    try:
        ours = {k: converted(v) for k, v in base.tensors.items()}
    except Exception as error:
        write(dict(kind="skipped", name=base.name, call=base.text(), torch=repr(error)))
        return 0
    count = 0
    done = set()
    for text in calls(form, base):
        if text in done or only is not None and text not in only:
            continue
        done.add(text)
        count += 1
        found = compare(text, base.tensors, ours, write)
        if found is not None:
            shapes = {
                k: f"{str(v.dtype)[6:]}{list(v.shape)}" for k, v in base.tensors.items() if re.search(rf"\b{k}\b", text)
            }
            write(dict(found, name=base.name, form=form, tensors=shapes))
            if text == base.text() and found["kind"] != "result":
                break
    return count


def apart(form: str, base: Base, only: set[str] | None = None) -> tuple[int, list[dict[str, Any]]]:
    """`one` in a process of its own: calls may end it."""
    read, end = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        with os.fdopen(end, "w", buffering=1) as file:
            try:
                signal.signal(signal.SIGALRM, _alarm)
                file.write(
                    json.dumps(
                        dict(count=one(form, base, lambda row: file.write(json.dumps(row, default=str) + "\n"), only))
                    )
                    + "\n"
                )
            finally:
                file.flush()
                os._exit(0)
    os.close(end)
    rows: list[dict[str, Any]] = []
    count, now, library = 0, "", ""
    with os.fdopen(read) as file:
        for line in file:
            row = json.loads(line)
            if "now" in row:
                now, library = row["now"], row["library"]
            elif "count" in row:
                count = row["count"]
            else:
                rows.append(row)
    _, status = os.waitpid(process, 0)
    if status and not any(r["kind"] == "skipped" for r in rows):
        rows.append(dict(kind="crash", call=now, name=base.name, form=form, library=library, status=status))
    return count, rows


_LIMITS = ((resource.RLIMIT_AS, 16 << 30), (resource.RLIMIT_CPU, 20))  # of a call with extreme numbers: bytes, seconds


def ending(text: str, tensors: dict[str, Any], library: Any) -> tuple[str, Any, list[Any]]:
    """`outcome` in a process of its own, with bounded memory and time; ("signal N", "", []) where that ended by one."""
    read, end = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        signal.signal(signal.SIGALRM, _alarm)
        for limit, value in _LIMITS:
            resource.setrlimit(limit, (value, value))
        with os.fdopen(end, "wb") as file:
            found = outcome(text, {k: v.clone() for k, v in tensors.items()}, library)
            file.write(pickle.dumps(found if sum(a.size for a in found[2]) < 10**7 else (*found[:2], [])))
        os._exit(0)
    os.close(end)
    with os.fdopen(read, "rb") as file:
        made = file.read()
    _, status = os.waitpid(process, 0)
    return pickle.loads(made) if made and not status else (f"signal {status & 127}", "", [])


def extreme_calls(form: str, base: Base) -> tuple[int, list[dict[str, Any]]]:
    """All calls of one base with extreme numbers, and those whose ends differ."""
    rows: list[dict[str, Any]] = []
    ours = {k: converted(v) for k, v in base.tensors.items()}
    texts = list(dict.fromkeys(calls(form, base, True)))
    for text in texts:
        a = ending(text, base.tensors, torch)
        b = ending(text, ours, rushlight)
        found = differing(text, a, b)
        refused = found is not None and found["kind"] == "class"
        if b[0].startswith("signal") or b[0] == "TooLong" or b[0] in _UNMEANT:
            found = dict(kind="crash", call=text, torch=a[0], ours=b[0], torch_says=a[1], we_say=b[1])
        elif refused or a[0].startswith("signal") or a[0] == "TooLong":
            continue
        if found is not None:
            rows.append(dict(found, name=base.name, form=form))
    return len(texts), rows


_UNMEANT = (
    "SystemError",
    "ZeroDivisionError",
    "KeyError",
    "AssertionError",
    "AttributeError",
    "error",
    "UnboundLocalError",
    "RecursionError",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=".")
    parser.add_argument("--groups", default="functions,methods,inplace,written,modules")
    parser.add_argument("--most", type=int, default=2, help="samples of an operator")
    parser.add_argument("--out", default="")
    parser.add_argument("--repeat", default="", help="only the calls that an earlier `--out` names")
    parser.add_argument("--extremes", action="store_true", help="change whole numbers alone, to extreme ones")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rushlight.set_num_threads(1)
    pattern, groups = re.compile(given.only), set(given.groups.split(","))
    sources: list[Iterator[tuple[str, Base]]] = []
    if groups & {"functions", "methods", "inplace"}:
        sources.append(operator_bases(pattern, groups, given.most))
    if "written" in groups:
        sources.append(written_bases(pattern))
    if "modules" in groups:
        sources.append(module_bases(pattern))
    totals: Counter[str] = Counter()
    again: dict[tuple[str, str], set[str]] = {}
    if given.repeat:
        with open(given.repeat) as file:
            for row in map(json.loads, file):
                again.setdefault((row.get("form", ""), row["name"]), set()).add(row["call"])
    with open(given.out or os.devnull, "w") as file:
        for source in sources:
            for form, base in source:
                if given.repeat and (form, base.name) not in again:
                    continue
                only = again[form, base.name] if given.repeat else None
                count, rows = extreme_calls(form, base) if given.extremes else apart(form, base, only)
                totals["calls"] += count
                for row in rows:
                    totals[row["kind"]] += 1
                    file.write(json.dumps(row) + "\n")
                file.flush()
                if not given.out:
                    for row in rows:
                        print(
                            f"{row['kind']:8} {row['call']}   {row.get('tensors', '')}\n           torch: {row.get('torch')} {row.get('torch_says', '')}\n           ours:  {row.get('ours')} {row.get('we_say', '')}"
                        )
    print(dict(totals))


if __name__ == "__main__":
    sys.exit(main())
