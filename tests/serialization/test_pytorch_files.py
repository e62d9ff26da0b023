"""Files of real PyTorch are read here, and files written here are read by real PyTorch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tests.serialization.make_torch_file import contents

import rushlight

STORED = Path(__file__).with_name("torch_file.bin")


def same(a: Any, b: Any) -> None:
    """Equal, whichever of the two libraries each belongs to."""
    if hasattr(a, "storage_offset"):
        assert type(a).__name__ == type(b).__name__
        assert tuple(a.shape) == tuple(b.shape) and repr(a.dtype) == repr(b.dtype)
        assert tuple(a.stride()) == tuple(b.stride()) and a.storage_offset() == b.storage_offset()
        assert a.requires_grad == b.requires_grad and str(a.device) == str(b.device)
        assert a.is_meta or a.detach().tolist() == b.detach().tolist()
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b)
        assert getattr(a, "_metadata", None) == getattr(b, "_metadata", None)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert repr(a) == repr(b)


@pytest.mark.parametrize("mmap", [False, True])
def test_stored_file(mmap: bool) -> None:
    found = rushlight.load(STORED, mmap=mmap)
    same(found, contents(rushlight))
    base, view, turned = found["shared"]
    view.fill_(100)
    assert base.tolist()[2:8] == [100, 3, 100, 5, 100, 7] and turned.tolist()[2] == [100, 100, 10]
    assert isinstance(found["parameter"], rushlight.nn.Parameter)


@pytest.mark.oracle
@pytest.mark.parametrize("mmap", [False, True])
def test_pytorch_reads_ours(mmap: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "ours.pt"
    rushlight.save(contents(rushlight), path)
    found = torch.load(path, weights_only=True, mmap=mmap)
    same(found, contents(torch))
    base, view, _ = found["shared"]
    view.fill_(100)
    assert base.tolist()[2] == 100


@pytest.mark.oracle
def test_we_read_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    buffer = io.BytesIO()
    torch.save(contents(torch), buffer)
    buffer.seek(0)
    same(rushlight.load(buffer), contents(rushlight))


@pytest.mark.oracle
def test_lazy_conjugates_and_uint_dtypes() -> None:
    torch = pytest.importorskip("torch")
    buffer = io.BytesIO()
    torch.save([torch.tensor([1 + 2j]).conj(), torch.tensor([5], dtype=torch.uint16)], buffer)
    buffer.seek(0)
    a, b = rushlight.load(buffer)
    assert a.tolist() == [1 - 2j] and b.dtype is rushlight.uint16 and b.tolist() == [5]


@pytest.mark.oracle
def test_whole_models_go_both_ways(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def make(nn: Any, t: Any) -> Any:
        t.manual_seed(0)
        layers = [
            nn.Linear(2, 3), nn.ReLU(), nn.Embedding(2, 3), nn.Conv2d(1, 2, 3, padding="same"), nn.BatchNorm2d(2), nn.LayerNorm(3),
            nn.Dropout(0.1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.ZeroPad2d(1), nn.PixelShuffle(2),
            nn.Upsample(scale_factor=2), nn.CrossEntropyLoss(), nn.ParameterList([t.ones(1)]), nn.ModuleDict({"a": nn.GELU()}),
        ]  # fmt: skip
        return nn.Sequential(*layers)

    ours, theirs = make(rushlight.nn, rushlight), make(torch.nn, torch)
    assert repr(ours) == repr(theirs)
    rushlight.save(ours, tmp_path / "ours.pt")
    torch.save(theirs, tmp_path / "theirs.pt")
    found = torch.load(tmp_path / "ours.pt", weights_only=False)
    assert repr(found) == repr(theirs)
    same(found.state_dict(), theirs.state_dict())
    assert found[0](torch.ones(1, 2)).tolist() == theirs[0](torch.ones(1, 2)).tolist()
    again = rushlight.load(tmp_path / "theirs.pt", weights_only=False)
    assert repr(again) == repr(ours)
    same(again.state_dict(), ours.state_dict())
    assert again[0](rushlight.ones(1, 2)).tolist() == ours[0](rushlight.ones(1, 2)).tolist()
