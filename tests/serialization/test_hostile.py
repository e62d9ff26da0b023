"""Damaged and hostile files: a clear error, and nothing is executed."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn

# What a program has to catch around `load` for any content of the file.
ERRORS = (RuntimeError, pickle.UnpicklingError, EOFError, NotImplementedError, ValueError)


def archive(data: bytes, records: dict[str, bytes] | None = None, compress: int = zipfile.ZIP_STORED) -> io.BytesIO:
    """A checkpoint with the given pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as out:
        out.writestr("archive/data.pkl", data)
        out.writestr("archive/byteorder", "little")
        for name, content in (records or {}).items():
            out.writestr(f"archive/{name}", content)
        out.writestr("archive/version", "3\n")
    buffer.seek(0)
    return buffer


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def call(module: str, name: str, *args: bytes) -> bytes:
    """A pickle that calls module.name with arguments that are given as pickle code."""
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"(" + b"".join(args) + b"tR."


def storage(kind: str = "FloatStorage", key: str = "0", location: str = "cpu", numel: int = 4) -> bytes:
    module = "torch.storage" if kind == "UntypedStorage" else "torch"
    return (
        b"(" + text("storage") + b"c" + f"{module}\n{kind}\n".encode() + text(key) + text(location)
        + b"J" + struct.pack("<i", numel) + b"tQ"
    )  # fmt: skip


def ints(*values: int) -> bytes:
    return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", v) for v in values) + b"t"


def tensor(offset: int, size: bytes, stride: bytes, **options: Any) -> bytes:
    empty = b"ccollections\nOrderedDict\n)R"
    where = b"\x8a\x08" + struct.pack("<q", offset)
    return call("torch._utils", "_rebuild_tensor_v2", storage(**options), where, size, stride, b"\x89", empty)


FOUR = {"data/0": struct.pack("<4f", 1, 2, 3, 4)}


def test_the_helpers_make_good_files() -> None:
    assert torch.load(archive(tensor(1, ints(3), ints(1)), FOUR)).tolist() == [2, 3, 4]


# ***** code *****


class Marker:
    """If `touch` were called, a file would appear."""


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"), ("posix", "system"), ("subprocess", "Popen"), ("builtins", "eval"), ("builtins", "exec"),
        ("builtins", "getattr"), ("__builtin__", "eval"), ("builtins", "__import__"), ("sys", "modules"),
        ("importlib", "import_module"), ("rushlight.serialization.loading", "load"), ("torch", "load"),
        ("torch._utils", "_rebuild_tensor_v2.__globals__"), ("collections", "OrderedDict.__init__"),
        ("pickle", "loads"), ("operator", "attrgetter"), ("functools", "partial"), ("numpy", "load"),
    ],
)  # fmt: skip
def test_names_that_are_not_allowed(module: str, name: str, tmp_path: Path) -> None:
    target = tmp_path / "touched"
    code = call(module, name, text(f"touch {target}"))
    with pytest.raises(pickle.UnpicklingError, match=r"not an allowed global|is blocked"):
        torch.load(archive(code))
    stacked = b"\x80\x04" + text(module) + text(name) + b"\x93(" + text(f"touch {target}") + b"tR."
    with pytest.raises(pickle.UnpicklingError, match=r"not an allowed global|is blocked"):
        torch.load(archive(stacked))
    assert not target.exists()


def test_the_classic_attack(tmp_path: Path) -> None:
    target = tmp_path / "touched"

    class Attack:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {target}",)

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(pickle.UnpicklingError):
            torch.load(archive(pickle.dumps([torch.Size, Attack()] if protocol > 1 else Attack(), protocol)))
    assert not target.exists()


@pytest.mark.parametrize(
    "code",
    [
        # objects that are not functions are called
        b"\x80\x02]tR.", b"\x80\x02X\x01\x00\x00\x00a)R.", b"\x80\x02}(tR.",
        # opcodes that make instances, or use the extension registry
        b"(ios\nsystem\n.", b"(cos\nsystem\no.", b"\x80\x02\x82\x01.", b"\x80\x02\x92.",
        # attributes of allowed functions and classes
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x0c\x00\x00\x00__defaults__Nsb.",
        b"\x80\x02ctorch.nn.parameter\nParameter\n}X\x07\x00\x00\x00__new__Nsb.",
        # methods of an OrderedDict are hidden by attributes
        b"\x80\x02ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsNsb.",
        # lists and dicts that are none
        b"\x80\x02X\x01\x00\x00\x00aK\x01a.", b"\x80\x02]K\x01K\x02s.", b"\x80\x02)(K\x01e.",
        # nothing on the stack, no memo, no end
        b"\x80\x02.", b"\x80\x02h\x05.", b"\x80\x02]", b"\x80\x02(", b"\x80\x02q\x00.", b"\x80\x02\x86.", b"\x80\x02t.",
        b"\x80\xff.", b"\x80\x02X\xff\xff\xff\x7fa.", b"\x80\x02\x8b\xff\xff\xff\xff.", b"\x80\x02\x8a\x20a.", b"",
        # values that cannot be keys
        b"\x80\x02}]K\x01s.", b"\x80\x04\x8f(]\x90.",
    ],
)  # fmt: skip
def test_pickle_programs_that_are_not_data(code: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError):
        torch.load(archive(code))


@pytest.mark.parametrize(
    ("module", "name", "args"),
    [
        ("_codecs", "encode", (text("a"), text("zip"))),
        ("_codecs", "encode", (text("a"), text("antigravity"))),
        ("builtins", "bytearray", (b"\x8a\x06" + b"\xff\xff\xff\xff\xff\x00",)),
        ("torch", "Size", (b"K\x05",)),
        ("torch", "device", (text("nowhere:1"),)),
        ("torch", "Tensor", (b"\x8a\x05\x00\x00\x00\x00\x10",)),
        ("torch.nn.parameter", "Parameter", (b"]",)),
        ("builtins", "set", (b"K\x01",)),
        ("builtins", "complex", (b"]",)),
        ("collections", "Counter", (b"K\x01",)),
        ("torch._utils", "_rebuild_tensor_v2", ()),
        ("torch._utils", "_rebuild_parameter", (b"]", b"\x88", b"N")),
        ("torch._tensor", "_rebuild_from_type_v2", (b"ctorch\nTensor\n", b"ctorch\nTensor\n", b"(K\x05t", b"}")),
        ("torch._tensor", "_rebuild_from_type_v2", (b"cbuiltins\nset\n", b"cbuiltins\nset\n", b")", b"}")),
    ],
)
def test_allowed_functions_check_their_arguments(module: str, name: str, args: tuple[bytes, ...]) -> None:
    with pytest.raises((pickle.UnpicklingError, RuntimeError)):
        torch.load(archive(call(module, name, *args)))


def test_allowing_a_class_allows_that_class_only() -> None:
    class Allowed:
        def __init__(self) -> None:
            self.x = 1

    from rushlight.serialization import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

    code = (
        b"\x80\x02c" + f"{Allowed.__module__}\n{Allowed.__qualname__}\n".encode() + b")\x81}X\x01\x00\x00\x00yK\x05sb."
    )
    with safe_globals([Allowed]):
        found = torch.load(archive(code))
        assert type(found) is Allowed and found.y == 5 and not hasattr(found, "x")
        with pytest.raises(pickle.UnpicklingError):
            torch.load(archive(call("os", "system", text("true"))))
    with pytest.raises(pickle.UnpicklingError, match="not an allowed global"):
        torch.load(archive(code))
    held = get_safe_globals()  # classes of pages that were imported
    add_safe_globals([(Allowed, "elsewhere.Name")])
    try:
        assert type(torch.load(archive(b"\x80\x02celsewhere\nName\n)\x81."))) is Allowed
        assert get_safe_globals() == [*held, (Allowed, "elsewhere.Name")]
    finally:
        clear_safe_globals()
        assert get_safe_globals() == []
        add_safe_globals(held)


def test_trusted_files_run_code_and_say_so() -> None:
    assert torch.load(archive(pickle.dumps(len, 2)), weights_only=False) is len
    with pytest.raises(
        pickle.UnpicklingError, match=r"needs torch.nn.modules.linear.NoSuchLayer, which rushlight lacks"
    ):
        torch.load(archive(b"\x80\x02ctorch.nn.modules.linear\nNoSuchLayer\n."), weights_only=False)


# ***** tensors that do not fit *****


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, ints(5), ints(1)), (4, ints(1), ints(1)), (-1, ints(1), ints(1)), (0, ints(-1), ints(1)),
        (0, ints(2), ints(-1)), (0, ints(2, 2), ints(1)), (0, ints(2), ints(2**40)), (2**60, ints(1), ints(1)),
        (0, ints(2**61, 2**61), ints(1, 1)), (0, b"K\x01", ints(1)), (0, b"(" + text("a") + b"t", ints(1)),
    ],
)  # fmt: skip
def test_views_beyond_their_storage(offset: int, size: bytes, stride: bytes) -> None:
    with pytest.raises(RuntimeError, match=r"out of bounds|corrupt file"):
        torch.load(archive(tensor(offset, size, stride), FOUR))


def test_views_without_elements_need_no_storage() -> None:
    assert torch.load(archive(tensor(0, ints(0, 7), ints(7, 1)), FOUR)).shape == (0, 7)
    assert torch.load(archive(tensor(0, ints(1000), ints(0)), FOUR)).sum().item() == 1000


@pytest.mark.parametrize(
    "options",
    [
        {"numel": 5},
        {"numel": -1},
        {"numel": 2**31 - 1},
        {"key": "1"},
        {"key": "../../etc/passwd"},
        {"location": "mars"},
    ],
)
def test_storages_that_do_not_fit(options: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, pickle.UnpicklingError)):
        torch.load(archive(tensor(0, ints(1), ints(1), **options), FOUR))


@pytest.mark.parametrize(
    "pid",
    [
        b"K\x01",
        b"(t",
        b"(" + text("module") + b"K\x01K\x01K\x01K\x01t",
        b"(" + text("storage") + b"NNNNt",
        text("storage"),
    ],
)
def test_references_that_are_no_storages(pid: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError):
        torch.load(archive(b"\x80\x02" + pid + b"Q."))


# ***** files *****


def good_file() -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.arange(40.0), "b": nn.Parameter(torch.ones(3)), "n": [1, "two"]}, buffer)
    return buffer.getvalue()


def test_truncated_files() -> None:
    whole = good_file()
    for length in range(0, len(whole), 7):
        with pytest.raises(ERRORS):
            torch.load(io.BytesIO(whole[:length]))


def test_flipped_bits_are_noticed_or_harmless() -> None:
    whole = good_file()
    want = torch.load(io.BytesIO(whole))
    chooser = random.Random(5)
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chooser.randrange(8)
        try:
            found = torch.load(io.BytesIO(bytes(damaged)))
        except (*ERRORS, UserWarning):
            continue
        assert found["w"].tolist() == want["w"].tolist() and found["n"] == want["n"]


def test_wrong_magic() -> None:
    with pytest.raises(pickle.UnpicklingError, match="not a checkpoint"):
        torch.load(io.BytesIO(b"this is no checkpoint at all"))
    with pytest.raises(EOFError, match="Ran out of input"):
        torch.load(io.BytesIO(b""))
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    with pytest.raises(EOFError):
        torch.load(io.BytesIO(magic))
    with pytest.raises(RuntimeError, match="Invalid protocol version: 7"):
        torch.load(io.BytesIO(magic + b"\x80\x02K\x07."))
    with pytest.raises(RuntimeError, match="Invalid magic number"):
        torch.load(io.BytesIO(b"\x80\x02K\x07."))
    with pytest.raises(RuntimeError, match=r"no record 'data.pkl'"):
        empty = io.BytesIO()
        with zipfile.ZipFile(empty, "w") as out:
            out.writestr("readme.txt", "hello")
        torch.load(io.BytesIO(empty.getvalue()))


def test_compressed_records_are_refused() -> None:
    bomb = {"data/0": b"\0" * 10_000_000}
    with pytest.raises(RuntimeError, match="compressed"):
        torch.load(archive(tensor(0, ints(4), ints(1)), bomb, zipfile.ZIP_DEFLATED))


def test_overlapping_records_are_refused() -> None:
    data = bytearray(archive(tensor(0, ints(4), ints(1)), {**FOUR, "data/1": b"x" * 16}).getvalue())
    start = data.rindex(b"PK\x01\x02", 0, data.rindex(b"archive/data/1"))
    first = data.rindex(b"PK\x01\x02", 0, data.rindex(b"archive/data/0"))
    data[start + 42 : start + 46] = data[first + 42 : first + 46]
    with pytest.raises(RuntimeError, match="overlaps"):
        torch.load(io.BytesIO(bytes(data)))


def test_wrong_byte_order_record() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr("a/data.pkl", b"\x80\x02N.")
        out.writestr("a/byteorder", "middle")
        out.writestr("a/version", "3\n")
    with pytest.raises(ValueError, match="Unknown endianness"):
        torch.load(io.BytesIO(buffer.getvalue()))


def test_big_endian_files_are_turned_round() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr("a/data.pkl", tensor(0, ints(4), ints(1)))
        out.writestr("a/byteorder", "big")
        out.writestr("a/version", "3\n")
        out.writestr("a/data/0", struct.pack(">4f", 1, 2, 3, 4))
    assert torch.load(io.BytesIO(buffer.getvalue())).tolist() == [1, 2, 3, 4]


def test_deep_nesting_does_not_overflow() -> None:
    with pytest.raises(ERRORS):
        torch.load(archive(b"\x80\x02" + b"]" * 200_000))
    found = torch.load(archive(b"\x80\x02)" + b"\x85" * 100_000 + b"."))
    for _ in range(100_000):
        found = found[0]
    assert found == ()


@pytest.mark.parametrize(("version", "says"), [
    (b"0\n", "version 0, but the supported versions"), (b"11\n", "version 11, but the supported versions"), (b"x", "no version"), (b"", "no version"),
    (b"9" * 100, "no version"), (None, "no record"),
])  # fmt: skip
def test_archives_of_other_formats_are_refused(version: bytes | None, says: str) -> None:
    """What they hold would be a guess."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr("archive/data.pkl", b"\x80\x02K\x01.")
        if version is not None:
            out.writestr("archive/version", version)
    buffer.seek(0)
    with pytest.raises(RuntimeError, match=says):
        torch.load(buffer)
