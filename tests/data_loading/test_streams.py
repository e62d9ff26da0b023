"""`torch.utils.data.datapipes.utils`: files by name, streams that close themselves, decoded bytes."""

from __future__ import annotations

import functools
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.utils.data.datapipes.utils import decoder, streams

FUNCTIONS = {
    "two": lambda a, b: 0, "default": lambda a, b=1, *, c=1: 0, "any": lambda *a: 0, "one or more": lambda a, *b: 0,
    "named": lambda a, *, c: 0, "none": lambda: 0, "bound": functools.partial(lambda a, b: 0, 1), "max": max,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "columns", "says"),
    [
        ("two", [0, 1], ""), ("two", 0, "takes 2 positional parameters, but 1 are required"),
        ("two", (0, 1, 2), "takes 2 parameters, but 3 are required"), ("default", 1, ""), ("default", [1, 2], ""),
        ("any", [1, 2, 3], ""), ("one or more", [1, 2, 3], ""), ("one or more", [], "takes 1 positional parameters, but 0"),
        ("named", 0, "takes 1 non-default keyword-only parameters"), ("none", None, "takes 0 parameters, but 1"),
        ("bound", 0, ""), ("max", [1, 2], ""),
    ],
)  # fmt: skip
def test_functions_of_columns(name: str, columns: Any, says: str) -> None:
    if not says:
        streams.validate_input_col(FUNCTIONS[name], columns)
        return
    with pytest.raises(ValueError, match=says):
        streams.validate_input_col(FUNCTIONS[name], columns)


def test_functions_that_cannot_be_pickled() -> None:
    def local() -> Any:
        return warnings

    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        for function in (FUNCTIONS["any"], (lambda x: lambda: x)(1), len, functools.partial(len)):
            streams._check_unpickable_fn(function)
    if not streams.dill_available():
        assert [str(each.message).split()[0] for each in met] == ["Lambda", "Local"]
    with pytest.raises(TypeError, match="callable function is expected"):
        streams._check_unpickable_fn(3)


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("z.txt", "a.txt", "b/c.txt", "b/d.py"):
        (tmp_path / name).write_text(name)

    def found(root: Path, **options: bool) -> list[str]:
        paths = streams.get_file_pathnames_from_root(str(root), ["*.txt", "*.md"], **options)
        return [str(Path(path).relative_to(tmp_path)) for path in paths]

    assert found(tmp_path) == ["a.txt", "z.txt"] and found(tmp_path, recursive=True) == ["a.txt", "z.txt", "b/c.txt"]
    assert found(tmp_path / "z.txt", abspath=True) == ["z.txt"] and streams.match_masks("x", "")
    with pytest.raises(FileNotFoundError), pytest.warns(UserWarning, match="No such file"):
        found(tmp_path / "not there")
    ((path, stream),) = streams.get_file_binaries_from_pathnames([str(tmp_path / "a.txt")], "b")
    assert stream.read() == b"a.txt" and streams.validate_pathname_binary_tuple((path, stream)) is None
    for wrong in (3, ("a",), (1, stream), ("a", 3)):
        with pytest.raises(TypeError):
            streams.validate_pathname_binary_tuple(wrong)
    stream.close()
    with pytest.raises(TypeError, match="Expected string type"):
        next(streams.get_file_binaries_from_pathnames([3], "t"))


def test_streams_close_with_the_last_that_reads_them() -> None:
    whole = streams.StreamWrapper(io.BytesIO(b"ab\ncd"))
    part = streams.StreamWrapper(io.BytesIO(b"x"), whole, name="part")
    whole.autoclose()
    assert not whole.closed and list(whole) == [b"ab\n", b"cd"] and repr(part).startswith("StreamWrapper<part,")
    streams.StreamWrapper.close_streams({"a": [part]})
    assert part.closed and whole.closed and whole.file_obj.closed
    with pytest.raises(RuntimeError, match="Parent stream should be StreamWrapper"):
        streams.StreamWrapper(io.BytesIO(), io.BytesIO())  # type: ignore[arg-type]


def test_bytes_by_extension() -> None:
    saved = io.BytesIO()
    torch.save(torch.ones(2), saved)
    decode = decoder.Decoder(decoder.basichandlers)
    found = decode([
        ("a.txt", b"hi"), ("b.cls", b"x7"), ("b.id", b"7"), ("c.json", b"[1]"), ("d.pickle", pickle.dumps(3)),
        ("_k", b"z"), ("f.zz", b"q"), ("g", b"text"), ("h.json", io.BytesIO(b"{}")), ("i.e", b""),
    ])  # fmt: skip
    assert found == {"a.txt": "hi", "b.cls": b"x7", "b.id": 7, "c.json": [1], "d.pickle": 3, "_k": "z", "f.zz": b"q",
        "g": "text", "h.json": {}, "i.e": b""}  # fmt: skip
    assert decode(("e.pt", saved.getvalue()))["e.pt"].equal(torch.ones(2)) and decode(None) == {}
    decode.add_handler(decoder.handle_extension("TXT", len))
    assert decode(("a.txt", b"hi")) == {"a.txt": 2}
    assert decoder.handle_extension("jpg", len)("a.JPG", b"ab") == 2


def test_images() -> None:
    pictures = pytest.importorskip("PIL.Image")
    file, pixels = io.BytesIO(), np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    pictures.fromarray(pixels).save(file, "png")

    def image(form: str) -> Any:
        return decoder.imagehandler(form)("png", file.getvalue())

    np.testing.assert_array_equal(image("rgb8"), pixels)
    np.testing.assert_allclose(image("rgb"), pixels / np.float32(255))
    np.testing.assert_array_equal(image("torchrgb8").numpy(), pixels.transpose(2, 0, 1))
    assert image("torch").dtype is torch.float32 and image("torchl8").shape == (1, 2, 2) and image("pill").mode == "L"
    assert image("rgba8").shape == (2, 2, 4) and decoder.imagehandler("rgb")("txt", b"") is None
    with pytest.raises(AssertionError, match="unknown image specification"):
        decoder.imagehandler("zz")
