"""Archives of earlier versions: operators mean in them what they meant when the archives were written."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pytest

import rushlight as torch

BODIES = {
    "tensors": "torch.div(x, y)",
    "number": "torch.div(x, 2)",
    "of_numbers": "torch.mul(x, torch.div(torch.size(x, 0), 4))",
    "mode": 'torch.div(x, y, rounding_mode="floor")',
    "inplace": "torch.div_(x, y)",
    "out": "torch.div(x, y, out=torch.zeros_like(y))",
    "full": "torch.full([3], 2)",
    "full_dtype": "torch.full([3], 2, dtype=4, layout=None, device=None, pin_memory=False)",
    "linspace": "torch.linspace(0, 1, None)",
    "linspace_steps": "torch.linspace(0, 1, 5)",
    "logspace": "torch.logspace(0, 1, None)",
    "gelu": "torch.gelu(x)",
}


def archive(body: str, version: int) -> io.BytesIO:
    """A module whose `forward(x, y)` gives the body, in an archive that says to be of a version."""

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.mul(x, y)

    whole, made = io.BytesIO(), io.BytesIO()
    torch.jit.save(torch.jit.script(Net()), whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith("/version"):
                data = f"{version}\n".encode()
            elif info.filename.endswith(".py"):
                assert b"torch.mul(x, y)" in data
                data = data.replace(b"torch.mul(x, y)", body.encode())
            new.writestr(info.filename, data)
    made.seek(0)
    return made


def run(name: str, version: int, x: Any, y: Any) -> torch.Tensor:
    """What the archive gives; saved again it gives the same, as an archive of today."""
    module = torch.jit.load(archive(BODIES[name], version))
    found = module(torch.tensor(x), torch.tensor(y))
    again = io.BytesIO()
    torch.jit.save(module, again)
    again.seek(0)
    with zipfile.ZipFile(again) as saved:
        assert saved.read(next(n for n in saved.namelist() if n.endswith("/version"))).strip() == b"10"
    again.seek(0)
    assert torch.equal(torch.jit.load(again)(torch.tensor(x), torch.tensor(y)), found)
    return found


@pytest.mark.parametrize("name", ["tensors", "number"])
def test_integers_were_divided_as_in_c(name: str) -> None:
    old, new = run(name, 3, [-7, 7], [2, 2]), run(name, 4, [-7, 7], [2, 2])
    assert old.dtype is torch.int64 and old.tolist() == [-3, 3]
    assert new.dtype is torch.float32 and new.tolist() == [-3.5, 3.5]
    assert run(name, 3, [-7.0, 7.0], [2.0, 2.0]).tolist() == [-3.5, 3.5]


def test_forms_of_division() -> None:
    assert run("mode", 3, [-7, 7], [2, 2]).tolist() == [-4, 3]
    assert run("inplace", 3, [-7, 7], [2, 2]).tolist() == [-3, 3]
    assert run("of_numbers", 3, [1, 2, 3], [1, 2, 3]).tolist() == [0.75, 1.5, 2.25]
    with pytest.raises(RuntimeError, match="Float"):
        run("inplace", 4, [-7, 7], [2, 2])
    assert run("out", 3, [-7, 7], [2, 2]).tolist() == [-3, 3]


def test_a_fill_value_alone_made_floats() -> None:
    old, new = run("full", 4, [1], [1]), run("full", 5, [1], [1])
    assert old.dtype is torch.float32 and new.dtype is torch.int64 and old.tolist() == new.tolist() == [2, 2, 2]
    assert run("full_dtype", 4, [1], [1]).dtype is torch.int64


def test_a_missing_number_of_steps_was_100() -> None:
    assert np.allclose(run("linspace", 7, [1], [1]).numpy(), np.linspace(0, 1, 100), atol=1e-6)
    assert np.allclose(run("logspace", 8, [1], [1]).numpy(), np.logspace(0, 1, 100), atol=1e-5)
    assert run("linspace_steps", 7, [1], [1]).tolist() == run("linspace_steps", 10, [1], [1]).tolist()
    with pytest.raises(RuntimeError, match="steps"):
        run("linspace", 8, [1], [1])


def test_gelu_had_one_form() -> None:
    x = np.array([-1.0, 0.5], dtype=np.float32)
    assert torch.equal(run("gelu", 9, x, x), torch.nn.functional.gelu(torch.from_numpy(x)))


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in BODIES if name != "gelu"])
def test_pytorch_reads_the_same(name: str) -> None:
    theirs = pytest.importorskip("torch")
    for version in (3, 10):
        for kind in (np.int64, np.float32):
            x, y = np.array([-7, 7], dtype=kind), np.array([2, 2], dtype=kind)
            try:
                wanted = theirs.jit.load(archive(BODIES[name], version))(
                    theirs.from_numpy(x.copy()), theirs.from_numpy(y.copy())
                )
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    run(name, version, x.tolist(), y.tolist())
                continue
            found = run(name, version, x.tolist(), y.tolist())
            assert str(found.dtype) == str(wanted.dtype) and np.allclose(found.numpy(), wanted.numpy(), rtol=1e-5), (
                version,
                kind,
            )
