"""`save` and `load`: what goes in comes out, and an interrupted save loses nothing."""

from __future__ import annotations

import errno
import io
import os
import stat
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


def through(obj: Any, **options: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert (a.shape, a.dtype, a.stride(), a.requires_grad) == (b.shape, b.dtype, b.stride(), b.requires_grad)
        assert a.storage_offset() == b.storage_offset() and a.device == b.device
        assert a.is_meta or a.detach().tolist() == b.detach().tolist()
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert a == b


# ***** round trips *****


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype: Any) -> None:
    x = torch.tensor([0, 1, 1, 0, 1], dtype=torch.int64).to(dtype)
    same(x, through(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor(2.5),
        lambda: torch.empty(0),
        lambda: torch.empty(3, 0, 2),
        lambda: torch.randn(3, 4).T,
        lambda: torch.arange(20)[3:17:4],
        lambda: torch.arange(12).as_strided((3, 2), (1, 3), 2),
        lambda: torch.ones(1).as_strided((3, 3), (0, 0)),
        lambda: torch.ones(2, requires_grad=True),
        lambda: nn.Parameter(torch.ones(2), requires_grad=False),
        lambda: torch.empty(2, 3, device="meta"),
    ],
)
def test_shapes_strides_and_flags(make: Any) -> None:
    x = make()
    same(x, through(x))


def test_special_values() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45])
    assert repr(through(x).tolist()) == repr(x.tolist())


def test_containers_and_scalars() -> None:
    obj = {
        "numbers": [
            1,
            -1,
            255,
            256,
            70000,
            2**31,
            -(2**31),
            2**40,
            2**200,
            -(2**200),
            1.5,
            float("inf"),
            True,
            None,
            2j,
        ],
        "text": ["", "x", "ünïcödé ☃", "a" * 300],
        "bytes": [b"", b"\x00\xff", bytearray(b"abc")],
        "sets": [set(), {1, 2}],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "torch": [torch.Size([2, 3]), torch.float32, torch.bfloat16, torch.device("cpu"), torch.device("cuda", 1)],
        "dicts": [OrderedDict(b=1, a=2), Counter("aab")],
        3: "an int for a key",
    }
    same(obj, through(obj))


def test_shared_storage_stays_shared() -> None:
    base = torch.zeros(6)
    a, b, again = through([base, base[2:4], base])
    assert a is again
    b.fill_(7)
    assert a.tolist() == [0, 0, 7, 7, 0, 0]


def test_arrays_that_begin_at_one_place() -> None:
    import numpy as np

    held = np.arange(5.0)
    short, whole, again = through([torch.from_numpy(held[:2]), torch.from_numpy(held), torch.from_numpy(held)])
    assert short.tolist() == [0, 1] and whole.tolist() == [0, 1, 2, 3, 4] and whole.data_ptr() == again.data_ptr()


class Counted(torch.Tensor):
    """A subclass that says itself how it is pickled, by the way of its base."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        function, (maker, cls, args, state) = super().__reduce_ex__(protocol)
        return function, (maker, cls, args, {**state, "count": 1 + getattr(self, "count", 0)})


def test_subclasses_that_say_how_they_are_pickled() -> None:
    x = torch.arange(3.0).as_subclass(Counted)
    with torch.serialization.safe_globals([Counted]):
        found = through([x, x[1:]])
    assert type(found[0]) is Counted and found[0].count == 1 and found[1].tolist() == [1, 2]
    assert found[0].data_ptr() + 4 == found[1].data_ptr()


def test_one_list_twice_stays_one_list() -> None:
    inner: list[int] = [1]
    a, b = through([inner, inner])
    assert a is b


def test_module_state(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    torch.save(net.state_dict(), tmp_path / "net.pt")
    state = torch.load(tmp_path / "net.pt")
    assert state._metadata == net.state_dict()._metadata
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    other.load_state_dict(state)
    same(dict(other.state_dict()), dict(net.state_dict()))


def test_whole_module_needs_trust(tmp_path: Path) -> None:
    import pickle

    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    path = tmp_path / "net.pt"
    torch.save(net, path)
    with pytest.raises(
        pickle.UnpicklingError, match=r"torch.nn.modules.container.Sequential was not an allowed global"
    ):
        torch.load(path)
    again = torch.load(path, weights_only=False)
    assert repr(again) == repr(net) and again[0].weight.tolist() == net[0].weight.tolist()
    from rushlight.serialization import get_unsafe_globals_in_checkpoint, safe_globals

    wanted = ["activation.ReLU", "container.Sequential", "linear.Linear"]
    assert get_unsafe_globals_in_checkpoint(path) == [f"torch.nn.modules.{name}" for name in wanted]
    with safe_globals([nn.Sequential, nn.Linear, nn.ReLU]):
        assert repr(torch.load(path)) == repr(net)


def test_whole_modules_of_many_kinds() -> None:
    net = nn.ModuleList([
        nn.TransformerEncoderLayer(4, 2), nn.TransformerDecoderLayer(4, 2, activation="gelu"), nn.LSTM(2, 3), nn.MultiheadAttention(4, 2), nn.Conv2d(1, 2, 3),
        nn.GroupNorm(1, 2), nn.LazyLinear(3), nn.AdaptiveMaxPool2d(2), nn.Bilinear(2, 2, 2), nn.EmbeddingBag(3, 2), nn.CTCLoss(), nn.Threshold(1, 2),
    ])  # fmt: skip
    assert repr(through(net, weights_only=False)) == repr(net)


def test_hooks_are_not_saved() -> None:
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="will not be serialized"):
        through(x)


def test_optimizer_state() -> None:
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([p], lr=0.1)
    p.grad = torch.ones(3)
    optimizer.step()
    state = optimizer.state_dict()
    again = through(state)
    same(state, again)
    torch.optim.AdamW([p]).load_state_dict(again)


def test_tensors_that_view_one_memory_as_two_dtypes_are_refused() -> None:
    x = torch.zeros(4)
    other = x.view(torch.int32)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        through([x, other])


# ***** map_location, mmap, streams *****


def test_map_location() -> None:
    x = torch.arange(3)
    assert through(x, map_location="cpu").tolist() == [0, 1, 2]
    assert through(x, map_location=torch.device("meta")).is_meta
    assert through(x, map_location={"cpu": "meta"}).is_meta
    assert through(x, map_location=lambda storage, location: storage).tolist() == [0, 1, 2]
    assert through(x, map_location=lambda storage, location: None).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="CUDA device but torch.cuda.is_available.. is False"):
        through(x, map_location="cuda:0")
    with pytest.raises(TypeError, match="not callable: map_location is"):
        through(x, map_location=3)


def test_mmap(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.arange(5), "e": torch.empty(0)}, path)
    before = path.read_bytes()
    found = torch.load(path, mmap=True)
    assert found["a"].tolist() == [0, 1, 2, 3, 4] and found["e"].numel() == 0
    found["a"].fill_(9)
    assert path.read_bytes() == before and torch.load(path)["a"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="must be a file path"):
        torch.load(io.BytesIO(before), mmap=True)


def test_streams(tmp_path: Path) -> None:
    class WriteOnly:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

    out = WriteOnly()
    torch.save(torch.arange(3), out)
    assert torch.load(io.BytesIO(out.data)).tolist() == [0, 1, 2]
    prefixed = io.BytesIO(b"12345" + out.data)
    prefixed.seek(5)
    assert torch.load(prefixed).tolist() == [0, 1, 2]
    reading, writing = os.pipe()
    os.write(writing, b"PK\3\4")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe, pytest.raises(OSError, match="seek"):
        torch.load(pipe)
    with pytest.raises(AttributeError, match="file-like object with a 'write' attribute"):
        torch.save(1, 3)
    with pytest.raises(AttributeError, match="seekable"):
        torch.load(object())


def test_layout_of_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "some.name.pt"
    torch.save([torch.arange(3), torch.ones(2, 2)], path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            f"some.name/{name}"
            for name in ("data.pkl", "byteorder", "data/0", "data/1", "version", ".data/serialization_id")
        ]
        assert archive.read("some.name/version") == b"3\n"
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            with open(path, "rb") as file:
                file.seek(info.header_offset + 26)
                lengths = file.read(4)
            start = (
                info.header_offset + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
            )
            assert start % 64 == 0


def test_equal_contents_give_equal_files() -> None:
    first, second = io.BytesIO(), io.BytesIO()
    torch.save({"a": torch.ones(3)}, first)
    torch.save({"a": torch.ones(3)}, second)
    assert first.getvalue() == second.getvalue()


# ***** nothing is lost *****


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("cannot be pickled")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(3), path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="cannot be pickled"):
        torch.save({"a": torch.ones(100), "b": _Unpicklable()}, path)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            torch.save(torch.ones(5), path)

    def interrupted(*a: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            torch.save(torch.ones(5), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.pt"]


def test_permissions_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "x.pt", tmp_path / "link.pt"
    torch.save(1, path)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    link.symlink_to(path)
    torch.save(2, link)
    assert link.is_symlink() and torch.load(path) == 2 and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"Parent directory .*none does not exist"):
        torch.save(1, tmp_path / "none" / "x.pt")
    with pytest.raises(IsADirectoryError):
        torch.save(1, tmp_path)
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "nothing.pt")
    torch.save(torch.ones(3), os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_file_that_is_read_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(4), path)
    mapped = torch.load(path, mmap=True)
    torch.save(torch.zeros(1), path)
    assert mapped.tolist() == [0, 1, 2, 3]


def test_pickle_modules_are_for_files_that_are_trusted() -> None:
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        import pickle

        torch.load(io.BytesIO(), pickle_module=pickle, weights_only=True)
