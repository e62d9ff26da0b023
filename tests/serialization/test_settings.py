"""The settings of `save` and `load`, and old and odd files, beside PyTorch where it is installed."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight
from rushlight.serialization import archive as archive_module


def saved(t: Any, obj: Any = None, **options: Any) -> io.BytesIO:
    out = io.BytesIO()
    t.save({"a": t.arange(3.0), "b": t.ones(2)} if obj is None else obj, out, **options)
    out.seek(0)
    return out


def mapped(t: Any, folder: Path, flag: int) -> Any:
    path = folder / f"{t.__name__}.pt"
    path.write_bytes(saved(t).getvalue())
    with t.serialization.set_default_mmap_options(flag):
        a = t.load(path, mmap=True)["a"]
        a.fill_(7)
        del a
    return t.load(path), t.serialization.get_default_mmap_options()


def mapped_by_default(t: Any, folder: Path) -> Any:
    path = folder / f"{t.__name__}.pt"
    path.write_bytes(saved(t).getvalue())
    t.utils.serialization.config.load.mmap = True
    try:
        return t.load(path)
    finally:
        t.utils.serialization.config.load.mmap = False


def skipped(t: Any) -> Any:
    with t.serialization.skip_data():
        out = saved(t)
    found = t.load(out)
    with t.serialization.skip_data():
        return found, [x.shape for x in t.load(saved(t)).values()]


def without_sums(t: Any) -> Any:
    t.serialization.set_crc32_options(False)
    try:
        out = saved(t)
    finally:
        t.serialization.set_crc32_options(True)
    with zipfile.ZipFile(io.BytesIO(out.getvalue())) as file:
        return {info.CRC for info in file.infolist()}, t.load(out), t.serialization.get_crc32_options()


def supposed_order(t: Any, order: str) -> Any:
    with zipfile.ZipFile(saved(t, t.tensor([1, 256], dtype=t.int16))) as file:
        records = {name: file.read(name) for name in file.namelist() if "byteorder" not in name}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in records.items():
            file.writestr(name, data)
    out.seek(0)
    t.serialization.set_default_load_endianness(t.serialization.LoadEndianness[order])
    try:
        return t.load(out), t.serialization.get_default_load_endianness().name
    finally:
        t.serialization.set_default_load_endianness(None)


def zipped_stream(t: Any, folder: Path, legacy: bool) -> Any:
    path = folder / f"{t.__name__}.gz"
    with gzip.open(path, "wb") as out:
        t.save(t.arange(3), out, _use_new_zipfile_serialization=not legacy)
    with gzip.open(path, "rb") as file:
        return t.load(file)


def one_after_the_other(t: Any, folder: Path) -> Any:
    path = folder / t.__name__
    with open(path, "wb") as out:
        out.write(b"a line before\n")
        for k in range(2):
            t.save(t.arange(k + 2), out, _use_new_zipfile_serialization=False)
    with open(path, "rb") as file:
        file.readline()
        return t.load(file), t.load(file, weights_only=False)


def of_numpy(t: Any) -> Any:
    out = saved(t, [np.float64(2.5), np.arange(3)])
    unsafe = sorted(t.serialization.get_unsafe_globals_in_checkpoint(out))
    out.seek(0)
    core = np._core.multiarray
    with t.serialization.safe_globals(
        [core._reconstruct, core.scalar, np.ndarray, np.dtype, np.dtypes.Float64DType, np.dtypes.Int64DType]
    ):
        return unsafe, t.load(out)


def archive_of_1_0(t: Any, folder: Path) -> Path:
    """A tar archive as PyTorch wrote them before 2017: two tensors over one storage, one of them over a part of it."""
    class_of = f"c{'torch'}\nFloatStorage\n".encode()
    storages = (
        pickle.dumps(1, 2)
        + b"\x80\x02K\x05X\x03\x00\x00\x00cpu"
        + class_of
        + b"\x87."
        + struct.pack("<q4f", 4, 0, 1, 2, 3)
    )
    storages += pickle.dumps([(9, 5, 1, 2)], 2)
    tensors = pickle.dumps(2, 2)
    for key, storage, sizes, strides in ((7, 5, (2, 2), (2, 1)), (8, 9, (2,), (1,))):
        tensors += b"\x80\x02K" + bytes((key,)) + b"K" + bytes((storage,)) + b"N\x87." + struct.pack("<q", len(sizes))
        tensors += struct.pack(f"<{2 * len(sizes) + 1}q", *sizes, *strides, 0)
    obj = b"\x80\x02}(X\x01\x00\x00\x00aX\x01\x00\x00\x007QX\x01\x00\x00\x00bX\x01\x00\x00\x008Qu."
    path = folder / f"{t.__name__}.tar"
    with tarfile.open(path, "w:", format=tarfile.PAX_FORMAT) as out:
        for name, data in (("storages", storages), ("tensors", tensors), ("pickle", obj)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return path


CASES: dict[str, Callable[[Any, Path], Any]] = {
    **{f"map {place}": lambda t, d, place=place: t.load(saved(t), map_location=place) for place in ("cpu", "meta", "cuda", "cuda:0", "foo", "xpu:1", None)},
    **{
        f"map {place}, legacy": lambda t, d, place=place: t.load(saved(t, _use_new_zipfile_serialization=False), map_location=place)
        for place in ("cpu", "meta", "cuda:0", "foo")
    },
    "map dict": lambda t, d: t.load(saved(t), map_location={"cpu": "meta"}),
    "map device": lambda t, d: t.load(saved(t), map_location=t.device("meta")),
    "map function": lambda t, d: t.load(saved(t), map_location=lambda s, l: s.fill_(0) if l == "cpu" else None),
    "map function, legacy": lambda t, d: t.load(saved(t, _use_new_zipfile_serialization=False), map_location=lambda s, l: s.clone()),
    "map to a number": lambda t, d: t.load(saved(t), map_location=3),
    "mmap shared": lambda t, d: mapped(t, d, mmap.MAP_SHARED), "mmap private": lambda t, d: mapped(t, d, mmap.MAP_PRIVATE),
    "mmap by default": mapped_by_default,
    "mmap otherwise": lambda t, d: t.serialization.set_default_mmap_options(77),
    "mmap of a buffer": lambda t, d: t.load(saved(t), mmap=True),
    "skip": lambda t, d: skipped(t), "sums": lambda t, d: without_sums(t),
    "little": lambda t, d: supposed_order(t, "LITTLE"), "big": lambda t, d: supposed_order(t, "BIG"), "native": lambda t, d: supposed_order(t, "NATIVE"),
    "no order": lambda t, d: t.serialization.set_default_load_endianness(3),
    "gzip": lambda t, d: zipped_stream(t, d, False), "gzip, legacy": lambda t, d: zipped_stream(t, d, True),
    "stream": one_after_the_other, "numpy": lambda t, d: of_numpy(t),
    **{f"protocol {n}": lambda t, d, n=n: t.load(saved(t, [t.ones(2), b"x", 2**80, (1, 2)], pickle_protocol=n), weights_only=False) for n in (1, 2, 3, 4, 5)},
    "encoding": lambda t, d: t.load(saved(t), weights_only=False, encoding="latin1"),
    "pickle_module": lambda t, d: t.load(saved(t), pickle_module=pickle),
    "pickle_module, safe": lambda t, d: t.load(saved(t), pickle_module=pickle, weights_only=True),
    "no write": lambda t, d: t.save(1, 3), "no parent": lambda t, d: t.save(1, d / "none" / "x"), "no file": lambda t, d: t.load(d / "none"),
    "no checkpoint": lambda t, d: t.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(b"abc")),
    "version": lambda t, d: [t.serialization.check_module_version_greater_or_equal(np, v) for v in ((1, 2), (100, 0))],
    "kinds": lambda t, d: (str(t.serialization.StorageType("LongStorage")), t.serialization.normalize_storage_type(t.LongStorage)),
    "tags": lambda t, d: [t.serialization.location_tag(t.empty(1, device=place).untyped_storage()) for place in ("cpu", "meta")],
    "a place": lambda t, d: t.serialization.default_restore_location(t.ones(1).untyped_storage(), "zz"),
    "cuda": lambda t, d: t.serialization.validate_cuda_device("cuda:1"), "hpu": lambda t, d: t.serialization.validate_hpu_device("hpu:1"),
    "tar": lambda t, d: t.load(archive_of_1_0(t, d), weights_only=False), "tar, safe": lambda t, d: t.load(archive_of_1_0(t, d)),
}  # fmt: skip


def outcome(case: Callable[[Any, Path], Any], t: Any, folder: Path) -> str:
    try:
        return repr(case(t, folder)).replace("rushlight.", "torch.")
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:24]}"


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    assert outcome(CASES[name], rushlight, tmp_path) == outcome(CASES[name], torch, tmp_path)


def test_old_archives(tmp_path: Path) -> None:
    found = rushlight.load(archive_of_1_0(rushlight, tmp_path), weights_only=False)
    assert found["a"].tolist() == [[0, 1], [2, 3]] and found["b"].tolist() == [1, 2]
    found["b"].fill_(9)
    assert found["a"].tolist() == [[0, 9], [9, 3]]


def test_shared_mapping_reaches_the_file(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="checksum"):
        found, flag = mapped(rushlight, tmp_path, mmap.MAP_SHARED)
    assert found["a"].tolist() == [7, 7, 7] and flag == mmap.MAP_PRIVATE


@pytest.mark.parametrize("threads", [1, 2])
def test_large_records_are_read_in_halves(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0).integers(0, 256, 5_000_003, dtype=np.uint8)
    path = tmp_path / "large.pt"
    rushlight.save({"large": rushlight.from_numpy(numbers), "small": rushlight.arange(3)}, path)
    kept, before = path.read_bytes(), rushlight.get_num_threads()
    at = kept.index(numbers[:64].tobytes())
    beside: list[int] = []
    read = archive_module.ArchiveReader._fill_at
    monkeypatch.setattr(
        archive_module.ArchiveReader,
        "_fill_at",
        lambda self, target, start: beside.append(start) or read(self, target, start),
    )
    rushlight.set_num_threads(threads)
    try:
        found = rushlight.load(path)
        assert np.array_equal(found["large"].numpy(), numbers) and found["small"].tolist() == [0, 1, 2]
        assert bool(beside) == (threads > 1 and hasattr(os, "preadv"))
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("archive")]
        for where in (at, at + 2_499_999, at + 2_500_002, at + 5_000_002):  # one changed byte in either half is seen
            path.write_bytes(kept[:where] + bytes([kept[where] ^ 1]) + kept[where + 1 :])
            with pytest.warns(UserWarning, match="checksum of record 'data/0' does not match"):
                changed = rushlight.load(path)["large"].numpy()
            assert np.flatnonzero(changed != numbers).tolist() == [where - at]
        packed = tmp_path / "large.pt.gz"
        packed.write_bytes(gzip.compress(kept, 1))
        with gzip.open(packed) as file:  # what it reads is not what lies in the file of its number
            assert np.array_equal(rushlight.load(file)["large"].numpy(), numbers)
    finally:
        rushlight.set_num_threads(before)


def test_large_records_are_read_at_the_programs_end(tmp_path: Path) -> None:
    path = tmp_path / "large.pt"
    rushlight.save(rushlight.arange(1 << 20), path)
    program = f"import atexit, rushlight; rushlight.set_num_threads(2); atexit.register(lambda: print(rushlight.load({str(path)!r})[-1].item()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == (f"{(1 << 20) - 1}\n", "")


def test_large_archives_in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if 2 KiB were 4 GiB and four records 65,535.
    monkeypatch.setattr(archive_module, "_FROM32", 2048)
    monkeypatch.setattr(archive_module, "_FROM16", 4)
    monkeypatch.setattr(archive_module, "_CHUNK", 4096)
    given = [rushlight.arange(1000), rushlight.arange(5), rushlight.arange(600.0)]
    out = saved(rushlight, given)
    monkeypatch.undo()
    with zipfile.ZipFile(out) as file:
        assert file.testzip() is None and file.getinfo("archive/data/0").file_size == 8000
    assert b"PK\x06\x06" in out.getvalue()
    out.seek(0)
    for found, wanted in zip(rushlight.load(out), given, strict=True):
        assert found.tolist() == wanted.tolist()


@pytest.mark.oracle
def test_pytorch_reads_large_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(archive_module, "_FROM32", 2048)
    monkeypatch.setattr(archive_module, "_CHUNK", 4096)
    out = saved(rushlight, [rushlight.arange(1000), rushlight.arange(5)])
    monkeypatch.undo()
    a, b = torch.load(out)
    assert a.tolist() == list(range(1000)) and b.tolist() == list(range(5))


class Owner:
    """Of a user's own: not allowed unless the user allows it."""

    def __init__(self) -> None:
        self.x = rushlight.ones(2)


class Marked(rushlight.Tensor):
    """A subclass of Tensor."""


def test_what_the_user_allows() -> None:
    marked = rushlight.ones(2).as_subclass(Marked)
    marked.note = "mine"
    for obj in (Owner(), marked):
        out = saved(rushlight, {"o": obj})
        with pytest.raises(
            pickle.UnpicklingError,
            match=rf"(?s)GLOBAL .*{type(obj).__name__} was not an allowed global by default.*add_safe_globals",
        ):
            rushlight.load(out)
        out.seek(0)
        with rushlight.serialization.safe_globals([type(obj)]):
            found = rushlight.load(out)["o"]
        assert type(found) is type(obj)
    assert found.note == "mine" and found.tolist() == [1, 1]


def test_places_of_ones_own() -> None:
    from rushlight.serialization import locations

    before = list(locations._registry)
    rushlight.serialization.register_package(
        5,
        lambda storage: "attic" if storage.nbytes() == 12 else None,
        lambda storage, place: storage.clone() if place == "attic" else None,
    )
    try:
        out = saved(rushlight)
        assert b"attic" in out.getvalue() and rushlight.load(out)["a"].tolist() == [0, 1, 2]
    finally:
        locations._registry[:] = before
    with pytest.raises(RuntimeError, match="tagged with attic"):
        rushlight.load(io.BytesIO(out.getvalue()))


@pytest.mark.parametrize("trusted", [False, True])
def test_old_files_of_gpus(trusted: bool) -> None:
    data = saved(rushlight, [rushlight.arange(3.0)], _use_new_zipfile_serialization=False).getvalue()
    data = data.replace(b"ctorch\nFloatStorage", b"ctorch.cuda\nFloatStorage").replace(
        b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"
    )
    with pytest.raises(RuntimeError, match="CUDA device"):
        rushlight.load(io.BytesIO(data), weights_only=not trusted)
    assert rushlight.load(io.BytesIO(data), map_location="cpu", weights_only=not trusted)[0].tolist() == [0, 1, 2]
    assert rushlight.load(io.BytesIO(data), map_location={"cuda:0": "cpu"}, weights_only=not trusted)[0].tolist() == [
        0,
        1,
        2,
    ]


def test_source_of_modules_in_streams(tmp_path: Path) -> None:
    net = rushlight.nn.Sequential(OrderedDict(fc=rushlight.nn.Linear(2, 2)))
    out = saved(rushlight, net, _use_new_zipfile_serialization=False)
    assert repr(rushlight.load(out, weights_only=False)) == repr(net)


def test_typed_storages_are_known_by_their_memory() -> None:
    x = rushlight.arange(3)
    kept = rushlight.TypedStorage(wrap_storage=x.untyped_storage(), dtype=x.dtype, _internal=True)
    assert kept._cdata == x.untyped_storage()._cdata and kept.tolist() == [0, 1, 2]


def test_storages_of_shared_files_know_their_names(tmp_path: Path) -> None:
    path = str(tmp_path / "numbers")
    np.arange(4.0).tofile(path)
    for shared in (True, False):
        x = rushlight.from_file(path, shared=shared, size=4, dtype=rushlight.float64)
        kept = rushlight.UntypedStorage.from_file(path, shared, 32)
        assert {x[1:].untyped_storage().filename, kept.filename} == {path if shared else None}
    assert rushlight.ones(2).untyped_storage().filename is None


def test_fake_tensors_are_written_as_tensors_of_their_devices() -> None:
    with rushlight._subclasses.FakeTensorMode():
        whole = rushlight.ones(3, 4)
        tied = rushlight.nn.Linear(4, 4, bias=False)
        fake = {
            "whole": whole, "row": whole[1:], "turned": whole.t(), "weight": tied.weight, "state": tied.state_dict(),
            "half": rushlight.ones(2, dtype=rushlight.bfloat16),
        }  # fmt: skip
    out = io.BytesIO()
    with rushlight.serialization.skip_data(materialize_fake_tensors=True):
        rushlight.save(fake, out)
    out.seek(0)
    found = rushlight.load(out)
    for name in ("whole", "row", "turned", "half"):
        one, two = found[name], fake[name]
        assert type(one) is rushlight.Tensor and one.dtype is two.dtype and one.stride() == two.stride()
        assert one.shape == two.shape and one.storage_offset() == two.storage_offset()
    assert type(found["weight"]) is rushlight.nn.Parameter and found["weight"].requires_grad
    with rushlight.no_grad():
        found["whole"].zero_()[2, 3] = 5
        found["weight"].fill_(2)
    assert found["row"][1].tolist() == [0, 0, 0, 5] and found["turned"][3, 2] == 5
    assert found["state"]["weight"].eq(2).all()
