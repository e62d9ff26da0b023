"""Random programs of layouts with hostile numbers: slices, strides, sizes and offsets around 2**31, 2**62, 2**63 and 2**64, and negative ones.

A program is a list of lines of Python over `m` (rushlight, or PyTorch) and a tensor `x`.  Every line either works or raises an error that a program can
catch; none may end the process.  `tools/sweeps/fuzz_layouts.py` runs many, each in a process of its own.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import random
import resource
import select
import signal
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["UNEXPECTED", "Outcome", "in_child", "program", "run", "serve", "warm"]

SECONDS, MEMORY = 10, 1 << 30  # of processor time, and bytes beyond what a process starts with
SHAPES = (
    (),
    (1,),
    (4,),
    (0,),
    (1, 1),
    (2, 3),
    (4, 4),
    (1, 5),
    (0, 3),
    (3, 0),
    (2, 1, 3),
    (2, 3, 4),
    (1, 2, 3, 2),
    (2, 3, 1, 2, 2),
)
DTYPES = ("float32", "float32", "float64", "int64", "int8", "bool", "complex64", "bfloat16")
CENTRES = (2**31, 2**32, 2**60, 2**61, 2**62, 2**63, 2**64, 2**65)
# No program has to expect these from a wrong layout.
UNEXPECTED = frozenset((
    "AssertionError", "AttributeError", "KeyError", "OverflowError", "RecursionError", "SystemError", "UnboundLocalError", "ZeroDivisionError", "error",
))  # fmt: skip
Outcome = list[str]


def program(seed: int) -> list[str]:
    """The lines of program number `seed`, the same on every machine."""
    r = random.Random(seed)
    lines = [_base(r)]
    for _ in range(r.randint(1, 3)):
        lines.append(r.choice(VIEWS)(r))
        if r.random() < 0.15:
            lines.append(r.choice(HOLDS)(r))
    lines += [r.choice(USES)(r) for _ in range(r.randint(1, 3))]
    return lines


def number(r: random.Random) -> int:
    """A number as a size, stride, offset or index: small, or around a power of two where arithmetic of 32, 63 or 64 bits ends."""
    if r.random() < 0.6:
        return r.randint(-2, 6)
    found = r.choice(CENTRES) + r.randint(-2, 2)
    return -found if r.random() < 0.25 else found


def _few(r: random.Random, most: int = 3) -> int:
    return r.randint(0, most)


def _numbers(r: random.Random, count: int) -> str:
    return "(" + "".join(f"{number(r)}, " for _ in range(count)) + ")"


def _safe(r: random.Random, count: int) -> str:
    """Mostly small numbers, so that some layouts come about."""
    return "(" + "".join(f"{r.randint(0, 3) if r.random() < 0.75 else number(r)}, " for _ in range(count)) + ")"


def _base(r: random.Random) -> str:
    shape, dtype = r.choice(SHAPES), r.choice(DTYPES)
    count = 1
    for n in shape:
        count *= n
    line = f"x = m.arange({count}).to(m.{dtype}).reshape({shape})"
    if dtype in ("float32", "float64", "complex64") and r.random() < 0.2:
        line += ".requires_grad_()"
    return line


# ***** lines that make another layout *****


def _index(r: random.Random) -> str:
    parts = []
    for _ in range(r.randint(1, 3)):
        kind = r.random()
        if kind < 0.55:
            bounds = [str(number(r)) if r.random() < 0.6 else "" for _ in range(3)]
            parts.append(":".join(bounds) if any(bounds) else ":")
        elif kind < 0.7:
            parts.append(str(number(r)))
        else:
            parts.append(
                r.choice(
                    (
                        "None",
                        "...",
                        "True",
                        "False",
                        "m.tensor([0, 0])",
                        "m.tensor([True])",
                        f"m.tensor([{min(max(number(r), -(2**63)), 2**63 - 1)}])",
                    )
                )
            )
    return f"x[{', '.join(parts)}]"


def _part(r: random.Random) -> str:
    return f"x = {_index(r)}"


def _as_strided(r: random.Random) -> str:
    n = _few(r)
    offset = f", {number(r)}" if r.random() < 0.5 else ""
    return f"x = x.as_strided({_safe(r, n)}, {_safe(r, n)}{offset})"


def _set(r: random.Random) -> str:
    n = _few(r)
    source = r.choice(
        ("x.untyped_storage()", "x", "m.ones(8).untyped_storage()", "m.ones(3, 3)", "m.UntypedStorage(16)")
    )
    strides = f", {_safe(r, n)}" if r.random() < 0.7 else ""
    return f"x = x.detach().set_({source}, {r.choice((0, 1, number(r)))}, {_safe(r, n)}{strides})"


def _resize(r: random.Random) -> str:
    return f"x = x.detach().resize_({_safe(r, _few(r))})"


def _strided(r: random.Random) -> str:
    n = _few(r)
    name = r.choice(("m.empty_strided(", "x.new_empty_strided("))
    return f"x = {name}{_safe(r, n)}, {_safe(r, n)})"


def _method(*forms: str) -> Callable[[random.Random], str]:
    """A line of one of these forms, where `#` is a number, `@` a small tuple of them."""

    def line(r: random.Random) -> str:
        made = ""
        for c in r.choice(forms):
            made += str(number(r)) if c == "#" else _safe(r, _few(r)) if c == "@" else c
        return f"x = {made}"

    return line


def _checkpoint(r: random.Random) -> str:
    n = _few(r)
    layout = f"{r.choice((0, 1, number(r)))}, {_safe(r, n)}, {_safe(r, n)}"
    if r.random() < 0.5:
        return f"x = rebuild(m.arange(12.0), {layout})"
    return f"x = loaded(m, {r.choice((12, 12, number(r)))}, {layout})"


_views = _method(
    "x.narrow(#, #, #)", "x.narrow(0, #, #)", "x.select(0, #)", "x.select(#, #)", "x.diagonal(#)", "x.diagonal(#, #, #)", "x.unfold(#, #, #)",
    "x.unfold(0, #, #)", "x.unfold(-1, 1, #)", "x.expand(@)", "x.view(@)", "x.reshape(@)", "x.flatten(#, #)", "x.unflatten(0, @)", "x.unsqueeze(#)",
    "x.squeeze(#)", "x.permute(@)", "x.transpose(#, #)", "x.movedim(#, #)", "x.split(#)[0]", "x.chunk(#)[-1]", "x.view(m.int8)", "x.view(m.float64)",
    "x.t()", "m.view_as_real(x)", "m.view_as_complex(x)", "x.real", "x.imag", "x.conj()", "x.detach()", "x.unbind(#)[0]", "x.broadcast_to(@)", "x[None]",
)  # fmt: skip
_makes = _method(
    "m.empty(@)", "m.zeros(@)", "m.full(@, 1)", "x.new_empty(@)", "x.new_zeros(@)", "m.eye(#, #)",
    "m.linspace(0, 1, #)", "m.tril_indices(2, #)", "m.triu_indices(#, 2)", "m.frombuffer(bytearray(16), dtype=m.int32, count=#, offset=#)",
    "m.nn.functional.pad(x, (#, #))", "x.repeat(@)", "x.tile(@)", "x.roll(#, #)", "x.tril(#)", "x.triu(#)", "m.diag_embed(x, #)", "m.diag(x, #)",
    "x.repeat_interleave(#)", "x.repeat_interleave(#, #)", "m.nn.functional.one_hot(m.tensor([1]), #)", "m.bincount(m.tensor([1, 2]), minlength=#)",
    "m.as_strided_scatter(x, m.ones(1), (1,), (#,), #)", "m.slice_scatter(x, x, 0, #, #, #)", "m.select_scatter(x, x[0], 0, #)",
    "m.diagonal_scatter(x, m.ones(1), #)", "x.narrow_copy(0, #, #)", "m.as_strided_copy(x, @, @, #)", "x.rot90(#, (0, 1))", "m.randperm(#)",
    "m.unravel_index(m.tensor([1]), @)[0]", "x.nonzero()", "m.unfold_copy(x, 0, #, #)", "m.nn.functional.fold(m.ones(1, 4, 1), (#, 2), (2, 2))",
    "m.nn.functional.unfold(m.ones(1, 1, 4, 4), (#, 1))", "m.nn.functional.max_pool1d(m.ones(1, 1, 8), #, #)", "m.stft(m.ones(16), #, return_complex=True)",
    "m.nn.functional.interpolate(m.ones(1, 1, 4), size=#)", "m.nn.functional.pixel_shuffle(m.ones(1, 4, 2, 2), #)",
)  # fmt: skip

VIEWS = (
    _part,
    _part,
    _part,
    _as_strided,
    _as_strided,
    _set,
    _set,
    _resize,
    _strided,
    _checkpoint,
    _views,
    _views,
    _views,
    _makes,
    _makes,
)


# ***** lines that hold memory in other ways, and lines that use the tensor *****


def _hold(*lines: str) -> Callable[[random.Random], str]:
    def line(r: random.Random) -> str:
        return "".join(str(number(r)) if c == "#" else c for c in r.choice(lines))

    return line


_storages = _hold(
    "s = x.untyped_storage(); s.resize_(#)", "s = m.UntypedStorage(#)", "s = x.untyped_storage()[#:#]; s.tolist()", "x.untyped_storage()[#]", "y = x.data",
    "y = x.data; y.resize_(8)", "y = m.zeros(2); y.data = x", "s = m.FloatStorage(#)", "n = x.numpy()", "y = x[:1]",
)  # fmt: skip
HOLDS = (_storages,)

_uses = _hold(
    "x + 1", "x * x", "x.sum()", "x.sum(0)", "x.clone()", "x.contiguous()", "x.fill_(1)", "x.mul_(2)", "x.add_(x)", "x.copy_(x.clone())", "x.tolist()", "repr(x)",
    "x.zero_()", "m.cat([x, x])", "x.to(m.float64)", "x == x", "x.sort()", "x.nonzero()", "x.numpy().copy()", "save(m, x)", "x.t() @ x", "x.flatten() + 1",
    "x.is_contiguous(), x.stride(), x.storage_offset()", "m.empty_like(x).fill_(1)", "x[0] = 1", "x[..., :1] = 2", "x[m.tensor([0])] = 1", "x.max()", "x.cumsum(0)",
    "(x * 2).sum().backward()", "x.index_select(0, m.tensor([0]))", "x.masked_fill(x == x, 1)", "m.stack([x, x])", "x.softmax(-1)", "list(x)", "x.any()",
    "m.add(x, 1, out=m.empty(1))", "m.add(x, 1, out=x)", "x.detach().resize_(2, 2).fill_(1)", "x.view(-1)", "x.gather(0, m.zeros_like(x, dtype=m.int64))", "x.item()",
    "hash(x), id(x), len(x)", "x.data_ptr(), x.nbytes", "x.untyped_storage().nbytes()", "m.equal(x, x)", "x.pow(2)", "m.where(x == x, x, x)", "x.to('meta')",
    "x.index_put_((m.tensor([0]),), x[0])", "x.unique()", "x.argmax()", "x.flip(0)", "x.float().mean(-1)", "x.repeat(2, 2)", "x[x == x]", "x.bool().all()",
)  # fmt: skip
_again = _hold("x = x[#:#:#]", "x = x + x[:1]")
USES = (_uses, _uses, _uses, _uses, _again)


# ***** running them *****


def rebuild(m: Any) -> Callable[..., Any]:
    """What a checkpoint calls to make a tensor, over the storage of one that is there."""

    def made(held: Any, offset: int, size: Any, stride: Any) -> Any:
        storage = m.storage.TypedStorage(wrap_storage=held.untyped_storage(), dtype=held.dtype)
        return m._utils._rebuild_tensor_v2(storage, offset, size, stride, False, {})

    return made


class _Records(pickle._Pickler):  # type: ignore[misc]
    """Writes the pickle of a checkpoint: objects of this class stand for names, with which they are written."""

    def save(self, obj: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(obj, _Name):
            self.write(b"c" + obj.text.encode())
        elif isinstance(obj, _Call):
            self.save(obj.function)
            self.save(obj.arguments)
            self.write(b"R")
        elif isinstance(obj, _Stored):
            self.save(obj.words)
            self.write(b"Q")
        else:
            super().save(obj, *args, **kwargs)


class _Name:
    def __init__(self, text: str) -> None:
        self.text = text


class _Call:
    def __init__(self, function: _Name, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class _Stored:
    def __init__(self, *words: Any) -> None:
        self.words = words


def loaded(m: Any, count: int, offset: int, size: Any, stride: Any) -> Any:
    """A tensor of a checkpoint that says this of it."""
    text, out = io.BytesIO(), io.BytesIO()
    stored = _Stored("storage", _Name("torch\nFloatStorage\n"), "0", "cpu", count)
    _Records(text, 2).dump(
        _Call(
            _Name("torch._utils\n_rebuild_tensor_v2\n"),
            stored,
            offset,
            size,
            stride,
            False,
            _Call(_Name("collections\nOrderedDict\n")),
        )
    )
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (
            ("data.pkl", text.getvalue()),
            ("byteorder", b"little"),
            ("data/0", bytes(48)),
            ("version", b"3\n"),
        ):
            archive.writestr(f"archive/{name}", data)
    out.seek(0)
    return m.load(out)


def save(m: Any, x: Any) -> Any:
    """A tensor written and read."""
    out = io.BytesIO()
    m.save(x, out)
    out.seek(0)
    return m.load(out)


def told(x: Any) -> str:
    """What is compared of a tensor."""
    return f"{tuple(x.shape)} {x.stride()} {x.storage_offset()}" if hasattr(x, "storage_offset") else type(x).__name__


def _reasonable(m: Any, x: Any) -> bool:
    """Whether lines that go over the elements of a tensor end soon."""
    return not isinstance(x, m.Tensor) or x.numel() <= 1 << 14


def run(m: Any, lines: list[str]) -> Outcome:
    """What each line of a program comes to: the layout of `x`, or the class of the error."""
    names: dict[str, Any] = {"m": m, "rebuild": rebuild(m), "loaded": loaded, "save": save, "x": m.zeros(0)}
    outcome = []
    for line in lines:
        if not _reasonable(m, names["x"]) and not line.startswith("x = x"):
            outcome.append("skipped")
            continue
        before = names["x"]
        try:
            exec(line, names)  # noqa: S102
            outcome.append(told(names["x"]))
        except Exception as error:
            names["x"] = before
            outcome.append(type(error).__name__)
    names.clear()
    gc.collect()
    return outcome


def warm(m: Any) -> None:
    """Let this process know what programs commonly use, so that those that are forked from it need not find out."""
    x = m.arange(12.0).reshape(3, 4)
    lines = [line for _ in range(400) for line in [_uses(random.Random(_))]]
    for line in lines:
        names = {"m": m, "x": x.clone(), "save": save}
        try:
            exec(line, names)  # noqa: S102
        except Exception:
            continue
    loaded(m, 12, 0, (3,), (1,))


def in_child(work: Callable[[], str], seconds: int = SECONDS, memory: int = MEMORY) -> str:
    """What `work` says, done in a forked process with bounds; "signal N" where that was killed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            signal.alarm(20 * seconds)  # other processes may have the processor meanwhile
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if memory:
                memory += int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            os.write(write, work().encode()[:60000])
        finally:
            os._exit(0)
    os.close(write)
    parts = []
    while select.select([read], [], [], 20 * seconds + 10)[0] and (part := os.read(read, 1 << 16)):
        parts.append(part)
    os.close(read)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return b"".join(parts).decode()


def serve(m: Any, seeds: range, memory: int = MEMORY, together: int = 1) -> Iterator[tuple[int, str]]:
    """(seed, what its lines came to, one after the other) of each program, run in a process forked for it.

    With `together` so many are run in one process; where that ends they are run again, each in its own.
    """
    warnings.simplefilter("ignore")
    m.set_num_threads(1)
    warm(m)
    gc.collect()
    gc.freeze()
    sys.stdout.flush()
    for start in range(seeds.start, seeds.stop, together):
        part = range(start, min(start + together, seeds.stop))
        said = in_child(lambda part=part: "\n".join(_said(m, seed) for seed in part), memory=memory).split("\n")  # type: ignore[misc]
        if len(said) != len(part):
            said = [in_child(lambda seed=seed: _said(m, seed), memory=memory) for seed in part]  # type: ignore[misc]
        yield from zip(part, said, strict=True)


def _said(m: Any, seed: int) -> str:
    return "; ".join(run(m, program(seed)))
