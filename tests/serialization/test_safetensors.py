"""Files in the safetensors format, and checkpoints in several of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight.serialization import safetensors, sharded

numpy_files = pytest.importorskip("safetensors.numpy", reason="needs the extra 'safetensors'")
library = pytest.importorskip("safetensors")

NAMES = [name for name in safetensors._DTYPES.values() if name != "float4_e2m1fn_x2"]


def numbers(x: Any) -> Any:
    return x.to(torch.complex128 if x.dtype.is_complex else torch.float64).tolist()


def test_every_dtype_and_shape(tmp_path: Path) -> None:
    given = {name: torch.tensor([0.0, 1.0, 1.0, 0.0]).to(getattr(torch, name)) for name in NAMES}
    given |= {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 3), "part": torch.arange(9.0)[3:6]}
    given["packed"] = torch.arange(4).to(torch.uint8).view(torch.float4_e2m1fn_x2)
    safetensors.save_file(given, tmp_path / "x.safetensors", {"made by": "hand"})
    mapped, in_memory = torch.load(tmp_path / "x.safetensors"), safetensors.load(safetensors.save(given))
    for found in (mapped, in_memory):
        assert set(found) == set(given)
        for name, x in given.items():
            y = found[name]
            assert (x.dtype, x.shape, y.is_contiguous()) == (y.dtype, y.shape, True)
            if name == "packed":
                x, y = x.view(torch.uint8), y.view(torch.uint8)
            assert numbers(x) == numbers(y)


def test_files_of_other_programs_and_for_them(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "x.safetensors"
    numpy_files.save_file(
        {"a": np.arange(6.0, dtype=np.float32).reshape(2, 3), "b": np.array([1, 2], dtype=np.int8)}, path
    )
    found = safetensors.load_file(path)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["b"].tolist() == [1, 2]
    safetensors.save_file({"h": torch.ones(2, dtype=torch.float16), "c": torch.arange(3)}, path)
    theirs = numpy_files.load_file(path)
    assert theirs["h"].dtype == np.float16 and theirs["c"].tolist() == [0, 1, 2]
    found["a"].fill_(7)  # a change stays in this process
    assert found["a"].sum().item() == 42


def test_parts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"a": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2)}, path, {"k": "v"})
    with safetensors.safe_open(path) as file:
        assert file.keys() == ["a", "b"] and file.metadata() == {"k": "v"} and "a" in file
        part = file.get_slice("a")
        assert part.get_shape() == [3, 4] and part.get_dtype() == "F32" and part[1, :2].tolist() == [4, 5]
        with pytest.raises(library.SafetensorError, match="does not contain tensor c"):
            file.get_tensor("c")
    assert torch.load(path, map_location="meta")["a"].is_meta
    with pytest.raises(RuntimeError, match="callable map_location"):
        torch.load(path, map_location=lambda s, l: s)


def test_what_the_format_does_not_have(tmp_path: Path) -> None:
    path, x = tmp_path / "x.safetensors", torch.arange(6.0)
    safetensors.save_file({"a": x}, path)
    before = path.read_bytes()
    for bad, error, text in [
        ({"a": x, "b": x}, RuntimeError, "share memory"), ({"a": x.reshape(2, 3).t()}, ValueError, "non contiguous"),
        ({"a": x.to_sparse()}, ValueError, "sparse"), ({"a": 1}, ValueError, "expected torch.Tensor"), ([x], ValueError, "Expected a dict"),
        ({"a": torch.ones(2, dtype=torch.complex128)}, ValueError, "no torch.complex128"), ({"a": torch.empty(2, device="meta")}, RuntimeError, "meta"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            safetensors.save_file(bad, path)  # type: ignore[arg-type]
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.safetensors"]
    for damaged in (before[:20], before[:-1], b"\xff" * 8 + before[8:], b""):
        path.write_bytes(damaged)
        with pytest.raises(library.SafetensorError):
            safetensors.load_file(path)


def test_shards(tmp_path: Path) -> None:
    tied, folder = torch.arange(100.0), tmp_path / "checkpoint"
    state = {
        "a": tied,
        "again": tied,
        "part": tied[10:20],
        "turned": torch.arange(16.0).reshape(4, 4).t(),
        "n": torch.tensor(3),
    }
    placed = sharded.save_sharded(state, folder, max_shard_size=300, metadata={"step": "7"})
    assert len(set(placed.values())) == 2 and placed["a"] == placed["again"] and set(placed) == set(state)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 400 + 40 + 64 + 8 and set(index["weight_map"]) == set(state) - {"again"}
    for names in (None, ["again", "n"]):
        found = sharded.load_sharded(folder, names)
        assert list(found) == (names or list(found))
        for name, x in found.items():
            assert x.tolist() == state[name].tolist()
    assert found["again"].tolist() == tied.tolist()
    sharded.save_sharded(state, folder)
    assert (
        os.listdir(folder) == ["model.safetensors"] and sharded.load_sharded(folder)["again"].tolist() == tied.tolist()
    )
    sharded.save_sharded({"b": torch.ones(3), "c": torch.ones(4)}, folder, max_shard_size="12 B".replace(" B", ""))
    assert set(sharded.load_sharded(folder)) == {"b", "c"} and len(os.listdir(folder)) == 3
    with pytest.raises(KeyError, match="zzz"):
        sharded.load_sharded(folder, ["zzz"])
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        sharded.load_sharded(tmp_path)
    index["weight_map"]["a"] = "../x.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="same folder"):
        sharded.load_sharded(folder)


def test_the_library_itself_works_under_the_other_name(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nfrom safetensors.torch import load_file, load_model, save_file, save_model\nfrom safetensors import safe_open\n"
        "save_file({'w': torch.ones(2, dtype=torch.bfloat16), 'n': torch.arange(3)}, 'x.safetensors')\n"
        "assert load_file('x.safetensors')['w'].dtype is torch.bfloat16\n"
        "with safe_open('x.safetensors', framework='pt') as f:\n    assert f.get_slice('n')[1:].tolist() == [1, 2]\n"
        "net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))\nnet[1].weight = net[0].weight\n"
        "save_model(net, 'm.safetensors')\nassert load_model(net, 'm.safetensors') == (set(), [])\nprint('done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", str(program)], capture_output=True, text=True, cwd=tmp_path, timeout=600
    )
    assert done.stdout == "done\n", done.stderr
