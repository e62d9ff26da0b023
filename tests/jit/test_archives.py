"""Archives that PyTorch 2.13 wrote: they run here and give PyTorch's results; what is written here can be read again."""

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch

FOLDER = Path(__file__).parent / "archives"
NAMES = sorted(p.stem for p in FOLDER.glob("*.pt"))


def value(plain: Any) -> Any:
    if isinstance(plain, dict) and "tensor" in plain:
        return torch.tensor(plain["tensor"], dtype=getattr(torch, plain["dtype"].removeprefix("torch.")))
    return [value(p) for p in plain] if isinstance(plain, list) else plain


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        return torch.allclose(found.double(), wanted.double(), rtol=1e-5, atol=1e-6) and found.dtype == wanted.dtype
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(same(f, w) for f, w in zip(found, wanted, strict=True))
    return bool(found == wanted)


def opened(name: str) -> tuple[Any, dict[str, Any]]:
    extra = {"expected.json": ""}
    module = torch.jit.load(str(FOLDER / f"{name}.pt"), _extra_files=extra)
    return module, json.loads(extra["expected.json"])


@pytest.mark.parametrize("name", NAMES)
def test_archives_of_pytorch_give_its_results(name: str) -> None:
    module, expected = opened(name)
    assert same(module(*map(value, expected["inputs"])), value(expected["results"]))


@pytest.mark.parametrize("name", NAMES)
def test_archives_written_again_give_the_same(name: str) -> None:
    module, expected = opened(name)
    out = io.BytesIO()
    torch.jit.save(module, out, _extra_files={"note": "x"})
    out.seek(0)
    extra = {"note": ""}
    again = torch.jit.load(out, _extra_files=extra)
    assert extra["note"] == "x" and list(again.state_dict()) == list(module.state_dict())
    assert same(again(*map(value, expected["inputs"])), value(expected["results"]))


@pytest.mark.parametrize("name", NAMES)
def test_code_of_archives_prints_as_pytorch_prints_it(name: str) -> None:
    """Names of temporaries in a text that was read are those of the text, so only the shape of the code is compared."""
    module, expected = opened(name)
    assert module.code.count("\n") <= 1.3 * expected["code"].count("\n") + 3


def test_parameters_train_and_move() -> None:
    module = torch.jit.load(FOLDER / "convolution.pt")
    assert [n for n, _ in module.named_parameters()][:2] == ["body.0.weight", "body.0.bias"]
    module.train()
    module(torch.randn(2, 1, 8, 8)).sum().backward()
    assert module.head.weight.grad is not None and module.body[1].num_batches_tracked == 1
    module.double()
    assert module(torch.randn(2, 1, 8, 8, dtype=torch.float64)).dtype == torch.float64
    assert module.original_name == "Convolution" and module.head.original_name == "Linear"


def test_exported_methods_and_errors_with_places() -> None:
    kinds = torch.jit.load(FOLDER / "kinds.pt")
    pair = kinds.named(torch.ones(2), 3)
    assert pair.second == 3 and torch.equal(pair.first, torch.full((2,), 3.0))
    with pytest.raises(RuntimeError, match="Expected a value of type 'int' for argument 'n'"):
        kinds.named(torch.ones(2), "x")
    control = torch.jit.load(FOLDER / "control.pt")
    with pytest.raises(RuntimeError, match=r"(?s)Traceback of TorchScript.*~ <--- HERE"):
        control(torch.ones(2, 4), [1], {"b": 1})


def test_damaged_archives_are_refused() -> None:
    data = (FOLDER / "kinds.pt").read_bytes()
    draw = random.Random(0)
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(draw.choice((1, 3, 20))):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        if draw.random() < 0.2:
            del changed[draw.randrange(len(changed)) :]
        try:
            module = torch.jit.load(io.BytesIO(bytes(changed)))
            module(torch.ones(2))
        except (RuntimeError, NotImplementedError, torch.jit.Error, ValueError):
            pass
        except Exception as error:
            if type(error).__name__ != "UnpicklingError":
                raise


def replaced(name: str, record: str, old: bytes, new: bytes) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(FOLDER / f"{name}.pt") as before, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as after:
        for info in before.infolist():
            data = before.read(info)
            if info.filename.endswith(record):
                assert old in data
                data = data.replace(old, new)
            kind = zipfile.ZIP_STORED if "/data" in info.filename else zipfile.ZIP_DEFLATED
            after.writestr(info.filename, data, kind)
    out.seek(0)
    return out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"torch.clone(x)", b"__import__('os')"),
        (b"torch.clone(x)", b"open('/etc/passwd')"),
        (b"torch.clone(x)", b"(lambda: x)()"),
        (b"torch.clone(x)", b"x.__class__"),
        (b"torch.clone(x)", b"ops.prim.nothing(x)"),
        (b"torch.clone(x)", b"-" * 3000 + b"x"),
        (b"torch.clone(x)", b"(" * 3000 + b"x" + b")" * 3000),
    ],
)
def test_code_of_archives_is_never_run(old: bytes, new: bytes) -> None:
    file = replaced("indexing", "__torch__.py", old, new)
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.jit.load(file)(torch.ones(3, 4), torch.tensor([1]))


def test_pickles_of_archives_make_no_other_objects() -> None:
    with pytest.raises(Exception, match="GLOBAL|no class|allowed"):
        torch.jit.load(replaced("indexing", "data.pkl", b"c__torch__\nIndexing\n", b"cos\nsystem\n"))
