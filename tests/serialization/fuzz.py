"""Hostile files for `load`, made from real ones of both formats, and what must hold for every one of them.

    RUSHLIGHT_FUZZ_INPUTS=1000000 python -m pytest tests/serialization/test_fuzz.py

or, without pytest and with progress shown, `python -m tests.serialization.fuzz 1000000`.  Input number n is the same on every machine.
"""

from __future__ import annotations

import codecs
import io
import pickle
import pickletools
import random
import resource
import signal
import struct
import sys
import warnings
import zipfile
from collections import Counter
from typing import Any

from tests.serialization.objects import objects

import rushlight as torch
from rushlight._host.checksum import crc32

# What a program has to catch around `load`, whatever is in the file.
ERRORS = (RuntimeError, pickle.UnpicklingError, EOFError, NotImplementedError, ValueError)
SECONDS, MEMORY = 20, 3 << 30
_NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**33,
    2**40,
    2**61,
    2**62,
    2**63 - 1,
    2**64 - 1,
)
_NAMES = (
    b"os\nsystem\n", b"builtins\neval\n", b"builtins\ngetattr\n", b"torch\nSize\n", b"torch\ndevice\n", b"torch\nTensor\n", b"torch\nfloat32\n",
    b"torch\nFloatStorage\n", b"torch.storage\nUntypedStorage\n", b"torch.storage\nTypedStorage\n", b"torch\nFloatTensor\n", b"collections\nOrderedDict\n",
    b"collections\nCounter\n", b"_codecs\nencode\n", b"builtins\nbytearray\n", b"builtins\nset\n", b"builtins\ncomplex\n", b"builtins\nbytes\n",
    b"torch._utils\n_rebuild_tensor_v2\n", b"torch._utils\n_rebuild_tensor_v3\n", b"torch._utils\n_rebuild_qtensor\n",
    b"torch._utils\n_rebuild_parameter\n", b"torch._utils\n_rebuild_sparse_tensor\n", b"torch._utils\n_rebuild_nested_tensor\n",
    b"torch._utils\n_rebuild_meta_tensor_no_storage\n", b"torch._utils\n_rebuild_parameter_with_state\n", b"torch.nn.parameter\nParameter\n",
    b"torch._tensor\n_rebuild_from_type_v2\n", b"torch.serialization\n_get_layout\n", b"torch.serialization\nload\n", b"torch\nload\n",
    b"torch.nested._internal.nested_tensor\n_rebuild_njt\n", b"torch._utils\n_rebuild_device_tensor_from_cpu_tensor\n",
    b"torch._dynamo.decorators\n_DimRange\n", b"torch._utils\n_rebuild_wrapper_subclass\n", b"torch._utils\n_rebuild_device_tensor_from_numpy\n",
)  # fmt: skip
_PATHS = (
    "../../etc/passwd",
    "/etc/passwd",
    "archive/../data.pkl",
    "archive/data.pkl",
    "data.pkl",
    "archive/data/0",
    "archive/constants.pkl",
    "a\x00",
    "/",
)


def corpus() -> list[tuple[bytes, bytes, dict[str, bytes]]]:
    """Real files: each as its bytes, its pickle, and its other records (none for the legacy format)."""
    found: list[tuple[bytes, bytes, dict[str, bytes]]] = []
    everything = objects(torch)
    groups = [["float32", "views", "plain"], ["coo", "csr", "bsr"], ["quint8", "channels"], ["nested", "jagged"], ["marked", "marked parameter"],
              ["uint16", "complex32", "storage", "conjugate"], ["torch", "dicts", "meta", "empty", "parameter"]]  # fmt: skip
    for names in groups:
        part = {name: everything[name] for name in names}
        for legacy in (False, True):
            out = io.BytesIO()
            if legacy:
                part.pop("nested", None)  # of strided layout: refused there
            torch.save(part, out, _use_new_zipfile_serialization=not legacy)
            data = out.getvalue()
            if legacy:
                found.append((data, data, {}))
                continue
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                records = {name: archive.read(name) for name in archive.namelist()}
            found.append((data, records.pop("archive/data.pkl"), records))
    return found


# ***** mutations *****


def _bytes_of(value: int, rng: random.Random) -> bytes:
    return struct.pack(rng.choice("<>") + "Q", value % 2**64)[: rng.choice((1, 2, 4, 8))]


def mutate_bytes(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A few changes that know nothing of the format."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        size = max(len(changed), 1)
        at, kind = rng.randrange(size), rng.randrange(8)
        if kind == 0 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and changed:
            changed[at] = rng.randrange(256)
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            del changed[at : at + rng.choice((1, 2, 8, 64))]
        elif kind == 4:
            start = rng.randrange(max(len(other), 1))
            changed[at:at] = other[start : start + rng.choice((1, 4, 32, 256))]
        elif kind == 5:
            value = _bytes_of(rng.choice(_NUMBERS), rng)
            changed[at : at + len(value)] = value
        elif kind == 6:
            changed[at:at] = changed[at : at + rng.choice((1, 8, 64, 512))]
        else:
            start = rng.randrange(max(len(other), 1))
            changed[at:] = other[start:]
    return bytes(changed)


def _operations(data: bytes) -> list[bytes]:
    places = [place for _, _, place in pickletools.genops(data)]
    return [data[a:b] for a, b in zip(places, [*places[1:], len(data)], strict=True)]


def _some_operation(rng: random.Random) -> bytes:
    kind = rng.randrange(7)
    if kind == 0:
        return b"c" + rng.choice(_NAMES)
    if kind == 1:
        return b"\x8a\x09" + struct.pack("<Qb", rng.choice(_NUMBERS), 0)
    if kind == 2:
        return b"J" + struct.pack("<I", rng.choice(_NUMBERS) % 2**32)
    if kind == 3:
        word = rng.choice(
            (
                b"storage",
                b"cpu",
                b"meta",
                b"cuda:0",
                b"0",
                b"1",
                b"torch.sparse_coo",
                b"data",
                b"_grad",
                b"\xff",
                b"latin1",
            )
        )
        return b"X" + struct.pack("<I", len(word)) + word
    if kind == 4:
        return bytes((rng.choice(b"qrhj"),)) + bytes((rng.randrange(12),))
    return bytes(
        (rng.choice(b"(.0NR)tQ}]absue\x81\x85\x86\x87\x88\x89\x8f\x90\x93\x94 2oi" if kind == 5 else range(256)),)
    )


def mutate_pickle(data: bytes, rng: random.Random) -> bytes:
    """Changes to the program that a pickle is: operations gone, doubled, moved, replaced."""
    try:
        operations = _operations(data)
    except Exception:
        return data
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, to, kind = rng.randrange(len(operations)), rng.randrange(len(operations)), rng.randrange(6)
        if kind == 0:
            operations[at] = _some_operation(rng)
        elif kind == 1:
            operations.insert(at, _some_operation(rng))
        elif kind == 2 and len(operations) > 1:
            del operations[at]
        elif kind == 3:
            operations.insert(at, operations[to])
        elif kind == 4:
            operations[at], operations[to] = operations[to], operations[at]
        else:
            operations[at:at] = operations[to : to + rng.choice((2, 5, 20))] * rng.choice((1, 1, 50))
    return b"".join(operations)


def pack(program: bytes, records: dict[str, bytes], rng: random.Random) -> bytes:
    """An archive of these, which may be wrong in ways of its own."""
    out, flaw = io.BytesIO(), rng.randrange(12)
    compression = zipfile.ZIP_DEFLATED if flaw == 0 else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", compression) as archive:
        warnings.simplefilter("ignore")
        archive.writestr("archive/data.pkl", program)
        for name, content in records.items():
            if flaw == 1 and rng.random() < 0.3:
                continue
            if flaw == 2 and rng.random() < 0.3:
                content = mutate_bytes(content, program, rng)
            if flaw == 3 and rng.random() < 0.3:
                name = rng.choice(_PATHS)
            archive.writestr(name, content)
            if flaw == 4 and rng.random() < 0.3:
                archive.writestr(name, content[:-1])
        if flaw == 5:
            archive.comment = program[: rng.randrange(1, 2000)]
    data = out.getvalue()
    if flaw == 6:  # an entry of the directory points somewhere else, or says another size
        at = data.find(b"PK\x01\x02", rng.randrange(len(data)))
        if at >= 0:
            field = at + rng.choice((10, 16, 20, 24, 28, 30, 42))
            data = data[:field] + struct.pack("<I", rng.choice(_NUMBERS) % 2**32) + data[field + 4 :]
    return data


_FILES: list[tuple[bytes, bytes, dict[str, bytes]]] = []


def hostile(number: int) -> bytes:
    """Input `number`."""
    if not _FILES:
        _FILES.extend(corpus())
    rng = random.Random(number)
    whole, program, records = rng.choice(_FILES)
    other = rng.choice(_FILES)
    way = rng.randrange(10)
    if way < 2:
        return mutate_bytes(whole, other[0], rng)
    if not records:
        # The legacy format: the third pickle is the object.
        changed = mutate_bytes(whole, other[1], rng) if way < 5 else _mutate_stream(whole, rng)
        return changed
    if way < 4:
        program = mutate_bytes(program, other[1], rng)
    elif way < 9:
        program = mutate_pickle(program, rng)
    else:
        program = b"\x80\x02" + b"".join(_some_operation(rng) for _ in range(rng.randrange(1, 60))) + b"."
    return pack(program, records if rng.random() < 0.9 else other[2], rng)


def _mutate_stream(data: bytes, rng: random.Random) -> bytes:
    stream, ends = io.BytesIO(data), [0]
    for _ in range(5):
        for _ in pickletools.genops(stream):
            pass
        ends.append(stream.tell())
    which = rng.choice((3, 3, 3, 4, 0))
    start, end = ends[which], ends[which + 1]
    return data[:start] + mutate_pickle(data[start:end], rng) + data[end:]


# ***** what must hold *****


class CodeRanError(BaseException):
    """A file reached something outside."""


_watching = [False]
_FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "exec", "compile", "import", "socket.connect", "os.remove",
              "os.rename", "os.mkdir", "os.open", "ctypes.dlopen", "shutil.", "code.")  # fmt: skip


def _audit(event: str, args: Any) -> None:
    if not _watching[0] or not event.startswith(_FORBIDDEN) or "rushlight" in str(args)[:300]:
        return
    frame = sys._getframe(1)
    while frame is not None:
        # A module of rushlight's that is loaded by its first use may load others; a kernel that is new goes to the cache's folder, wherever that is.
        file = frame.f_code.co_filename
        if (
            file.endswith(("_base/lazy.py", "_native/cache.py"))
            or file.startswith("<frozen importlib")
            and _loads_ours(frame)
        ):
            return
        frame = frame.f_back  # type: ignore[assignment]
    _watching[0] = False
    raise CodeRanError(f"{event} {args!r:.300}")


def _loads_ours(frame: Any) -> bool:
    return str(frame.f_locals.get("name", frame.f_locals.get("spec", ""))).find("rushlight") >= 0


def _too_long(*_: Any) -> None:
    raise CodeRanError(f"no end after {SECONDS} seconds")


def outcome(data: bytes) -> str:
    """Load it: the name of the error, or "loaded".  Raises for an error that no program expects."""
    signal.alarm(SECONDS)
    _watching[0] = True
    try:
        torch.load(io.BytesIO(data))
        return "loaded"
    except ERRORS as error:
        return type(error).__name__
    finally:
        _watching[0] = False
        signal.alarm(0)


def watch() -> None:
    """From now on this process notices what files must not reach: it ends only with the process, so run it in one of its own."""
    for number in range(300):  # whatever is loaded by the first use is loaded before
        try:
            torch.load(io.BytesIO(hostile(number)))
        except ERRORS:
            pass
    crc32(memoryview(bytearray(1 << 16)))  # its kernel may be compiled and stored now, not later
    for codec in ("raw-unicode-escape", "unicode-escape", "ascii", "latin-1"):  # of pickle's texts
        codecs.lookup(codec)
    sys.addaudithook(_audit)
    signal.signal(signal.SIGALRM, _too_long)
    held = int(open("/proc/self/statm").read().split()[0]) * 4096 if sys.platform == "linux" else 1 << 40
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.RLIM_INFINITY))


def run(first: int, count: int) -> Counter[str]:
    """Load that many inputs; says how many ended how."""
    found: Counter[str] = Counter()
    for number in range(first, first + count):
        try:
            found[outcome(hostile(number))] += 1
        except BaseException as error:
            raise AssertionError(f"input {number} ended in {error!r:.500}") from error
        if number % 20_000 == 19_999:
            print(
                number + 1, dict(found), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MiB", flush=True
            )
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    begin = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    watch()
    print(dict(run(begin, int(sys.argv[1]))))
