"""Files of real PyTorch are read here, and files written here are read by real PyTorch."""

from __future__ import annotations

import io
import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.serialization.make_torch_file import contents
from tests.serialization.objects import ZIP_ONLY, ZIP_ONLY_IN_PYTORCH, objects, same

import rushlight

STORED = Path(__file__).with_name("torch_file.bin")


def through(writer: Any, reader: Any, obj: Any, legacy: bool, **options: Any) -> Any:
    buffer = io.BytesIO()
    writer.save(obj, buffer, _use_new_zipfile_serialization=not legacy)
    buffer.seek(0)
    return reader.load(buffer, **options)


@pytest.mark.parametrize("legacy", [False, True])
def test_every_kind_of_object(legacy: bool) -> None:
    given, wanted = objects(rushlight), objects(rushlight)
    for name in given:
        if not (legacy and name in ZIP_ONLY):
            same(through(rushlight, rushlight, given[name], legacy), wanted[name])


@pytest.mark.oracle
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of what is young or old
def test_every_kind_of_object_both_ways(legacy: bool, trusted: bool) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = objects(rushlight), objects(torch)
    for name in ours:
        if legacy and name in ZIP_ONLY:
            continue
        same(through(torch, rushlight, theirs[name], legacy, weights_only=not trusted), ours[name])
        if not (legacy and name in ZIP_ONLY_IN_PYTORCH):
            same(through(rushlight, torch, ours[name], legacy, weights_only=not trusted), theirs[name])


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


@pytest.mark.oracle
def test_classes_have_pytorchs_names() -> None:
    torch = pytest.importorskip("torch")
    from rushlight.serialization.names import find_torch_global, torch_global

    for page in ("nn", "optim", "optim.lr_scheduler", "optim.swa_utils", "distributions", "utils.data", "amp"):
        ours, theirs = import_module(f"rushlight.{page}"), import_module(f"{torch.__name__}.{page}")
        for name in dir(theirs):
            cls, own = getattr(theirs, name), getattr(ours, name, None)
            known = (
                isinstance(cls, type)
                and isinstance(own, type)
                and not name.startswith("_")
                and cls.__module__.startswith(f"{torch.__name__}.")
            )
            if known and "datapipes" not in cls.__module__:
                assert torch_global(own) == (cls.__module__, cls.__qualname__)
                assert find_torch_global(cls.__module__, cls.__qualname__) is own


def whole_objects(t: Any) -> dict[str, Any]:
    """Objects that are saved with all they consist of."""
    n, weight = t.nn, t.nn.Parameter(t.ones(2))
    found: dict[str, Any] = {
        "encoder": n.TransformerEncoderLayer(4, 2), "decoder": n.TransformerDecoderLayer(4, 2, activation="gelu"), "lstm": n.LSTM(2, 3, 2),
        "gru": n.GRU(2, 3, bidirectional=True), "attention": n.MultiheadAttention(4, 2), "norm": n.BatchNorm3d(2), "lazy": n.LazyLinear(3),
        "bag": n.EmbeddingBag(3, 2), "average": t.optim.swa_utils.AveragedModel(n.Linear(2, 2)), "data": t.utils.data.TensorDataset(t.ones(3)),
        "normal": t.distributions.Normal(t.tensor(0.0), t.tensor(1.0)), "packed": n.utils.rnn.pack_sequence([t.ones(2), t.ones(1)]),
    }  # fmt: skip
    weight.grad = t.ones(2)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Rprop", "ASGD", "Adamax"):
        found[name] = getattr(t.optim, name)([weight], lr=0.1)
        found[name].step()
    found["cosine"] = t.optim.lr_scheduler.CosineAnnealingLR(found["SGD"], 5)
    found["plateau"] = t.optim.lr_scheduler.ReduceLROnPlateau(found["SGD"])
    return found


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("legacy", [False, True])
def test_whole_objects_both_ways(legacy: bool) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = whole_objects(rushlight), whole_objects(torch)
    for name in ours:
        for writer, reader, obj in ((torch, rushlight, theirs[name]), (rushlight, torch, ours[name])):
            found = through(writer, reader, obj, legacy, weights_only=False)
            assert type(found).__name__ == type(obj).__name__
            if hasattr(found, "state_dict") and name != "lazy":
                same(found.state_dict(), obj.state_dict())


@pytest.mark.oracle
def test_the_shell_of_a_wrapping_subclass() -> None:
    """PyTorch writes a tensor that only wraps others by sizes, dtype and attributes."""
    torch = pytest.importorskip("torch")

    class Theirs(torch.Tensor):  # type: ignore[misc]
        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), strides=inner.stride(), dtype=inner.dtype)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError

    class Ours(rushlight.Tensor):
        inner: Any

    Theirs.__qualname__, globals()["Theirs"] = "Theirs", Theirs
    name = f"{Theirs.__module__}.Theirs"
    buffer = io.BytesIO()
    torch.save(Theirs(torch.arange(6.0).reshape(2, 3)), buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Theirs"):
        rushlight.load(buffer)
    buffer.seek(0)
    with rushlight.serialization.safe_globals([(Ours, name)]):
        found = rushlight.load(buffer)
    assert type(found) is Ours and found.shape == (2, 3) and found.dtype is rushlight.float32 and found.is_meta
    assert found.inner.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.oracle
def test_everything_that_pytorch_allows_is_allowed() -> None:
    pytest.importorskip("torch")
    theirs = import_module("torch._weights_only_unpickler")._get_allowed_globals()
    missing = set(theirs) - set(import_module("rushlight.serialization.allowed").always_allowed())
    assert missing == set()


def test_what_the_legacy_format_cannot_hold_is_refused_when_it_is_saved() -> None:
    nested = rushlight.nested.nested_tensor([rushlight.ones(2), rushlight.ones(3)])
    with pytest.raises(RuntimeError, match="cannot be saved in the legacy format"):
        rushlight.save({"a": [nested]}, io.BytesIO(), _use_new_zipfile_serialization=False)
