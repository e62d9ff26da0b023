"""Tracebacks end in the user's frame: frames of the package are left out, those of the user's own functions stay."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as torch
from rushlight._base.errors import PACKAGE
from rushlight._base.tracebacks import TRACEBACK
from rushlight.nn import functional as F

nn = torch.nn
HERE = __file__


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with TRACEBACK.scoped("short"):
        yield


def fails(*args: Any) -> Any:
    """A function of the user's that the package calls."""
    raise KeyError("mine")


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return fails()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Broken(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: int) -> Any:
        return fails()


def x() -> Any:
    return torch.ones(2, 3)


def leaf() -> Any:
    return torch.ones(3, requires_grad=True)


def hooked() -> Any:
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(fails)
    return layer(x())


def hooked_backward() -> Any:
    y = leaf() * 2
    y.register_hook(fails)
    y.sum().backward()


def closed() -> Any:
    return torch.optim.SGD([nn.Parameter(leaf())], lr=0.1).step(fails)


# What fails, by the functions that its traceback names after this one.
CASES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "add": (lambda: x() + torch.ones(4), []),
    "matmul": (lambda: x() @ torch.ones(4, 5), []),
    "view": (lambda: x().view(7), []),
    "index": (lambda: x()[5], []),
    "index, kernel": (lambda: x()[:, torch.tensor([9])], []),
    "set": (lambda: x().__setitem__(0, torch.ones(9)), []),
    "in place": (lambda: leaf().add_(1), []),
    "out": (lambda: torch.add(x(), x(), out=torch.ones(2, 3, dtype=torch.int32)), []),
    "keyword": (lambda: torch.sum(x(), dims=3), []),
    "factory": (lambda: torch.tensor([[1], [1, 2]]), []),
    "random": (lambda: torch.randint(5, 2, (3,)), []),
    "item": (lambda: x().item(), []),
    "int": (lambda: int(x()), []),
    "if": (lambda: bool(x()), []),
    "numpy": (lambda: leaf().numpy(), []),
    "device": (lambda: x().cuda(), []),
    "factorise": (lambda: torch.linalg.inv(torch.zeros(2, 2)), []),
    "convolution": (lambda: nn.Conv2d(3, 4, 3)(torch.ones(1, 2, 8, 8)), []),
    "loss": (lambda: F.cross_entropy(x(), torch.tensor([7, 1])), []),
    "interpolate": (lambda: F.interpolate(x(), size=4), []),
    "recurrent": (lambda: nn.LSTM(4, 2)(x()), []),
    "attention": (lambda: nn.MultiheadAttention(4, 2)(x(), x(), x()), []),
    "backward": (lambda: x().sum().backward(), []),
    "autograd.grad": (lambda: torch.autograd.grad(x().sum(), x()), []),
    "state": (lambda: nn.Linear(3, 3).load_state_dict({}), []),
    "model": (lambda: Model()(torch.ones(2, 5)), ["forward"]),
    "hook": (hooked, ["hooked", "fails"]),
    "hook of a gradient": (hooked_backward, ["hooked_backward", "fails"]),
    "Function": (lambda: Failing.apply(leaf()).sum().backward(), ["backward", "fails"]),
    "closure": (closed, ["closed", "fails"]),
    "vmap": (lambda: torch.func.vmap(fails)(x()), ["fails"]),
    "grad": (lambda: torch.func.grad(fails)(leaf()), ["fails"]),
    "checkpoint": (lambda: torch.utils.checkpoint.checkpoint(fails, leaf(), use_reentrant=False), ["fails"]),
    "loader": (lambda: next(iter(torch.utils.data.DataLoader(Broken()))), ["__getitem__", "fails"]),
    "collate": (lambda: next(iter(torch.utils.data.DataLoader([1, "a"], batch_size=2))), []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_traceback_ends_in_the_users_frame(name: str) -> None:
    call, inner = CASES[name]
    with pytest.raises(Exception) as met:
        call()
    error = met.value
    frames = traceback.extract_tb(error.__traceback__)
    assert not [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    assert frames[-1].filename == HERE
    assert [
        frame.name for frame in frames if frame.name not in ("<lambda>", "test_a_traceback_ends_in_the_users_frame")
    ] == inner
    assert error.__context__ is None or error.__suppress_context__ or error.__cause__ is not None


def test_the_knob_shows_all() -> None:
    with TRACEBACK.scoped("full"), pytest.raises(RuntimeError) as met:
        x() @ torch.ones(4, 5)
    assert [frame for frame in traceback.extract_tb(met.value.__traceback__) if frame.filename.startswith(PACKAGE)]


def test_what_the_user_was_handling_is_still_mentioned() -> None:
    try:
        try:
            fails()
        except KeyError:
            x() @ torch.ones(4, 5)
    except RuntimeError as error:
        shown = "".join(traceback.format_exception(error))
    assert "KeyError: 'mine'" in shown and "During handling of the above exception" in shown and PACKAGE not in shown


def test_a_cause_is_shown_without_our_frames() -> None:
    try:
        try:
            x() @ torch.ones(4, 5)
        except RuntimeError as first:
            raise ValueError("the model is wrong") from first
    except ValueError as error:
        shown = "".join(traceback.format_exception(error))
    assert "direct cause" in shown and shown.count("  File ") == 2 and PACKAGE not in shown


PROGRAM = """
import rushlight as torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def forward(self, x):
        return self.layers(x)

def test_training():
    Model()(torch.ones(2, 5))
""".replace("from torch import nn", "nn = torch.nn")
SHORT = {**os.environ, "RUSHLIGHT_TRACEBACK": "short"}


def test_lines_of_a_wrong_shape(tmp_path: Any) -> None:
    """PyTorch prints 22 for the same program."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + "\ntest_training()\n")
    done = subprocess.run([sys.executable, str(script)], env=SHORT, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1].startswith(
        "RuntimeError: mat1 and mat2 shapes"
    )
    assert done.stderr.count("  File ") == 3 and len(lines) <= 9, done.stderr
    in_runner = subprocess.run(
        [sys.executable, "-m", "rushlight", str(script)], env=SHORT, capture_output=True, text=True
    )
    assert in_runner.stderr.count("  File ") == 3 and in_runner.stderr.splitlines()[-1].startswith(
        "RuntimeError: mat1"
    ), in_runner.stderr


def test_lines_under_pytest(tmp_path: Any) -> None:
    (tmp_path / "test_program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_program.py"],
        cwd=tmp_path,
        env=SHORT,
        capture_output=True,
        text=True,
    )
    assert (
        "RuntimeError: mat1 and mat2" in done.stdout and PACKAGE not in done.stdout and "rushlight/_" not in done.stdout
    ), done.stdout


@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
def test_lines_in_a_notebook(tmp_path: Any) -> None:
    script = tmp_path / "program.ipy"
    script.write_text(PROGRAM + "\ntest_training()\n")
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--colors=NoColor", str(script)], env=SHORT, capture_output=True, text=True
    )
    shown = done.stdout + done.stderr
    assert "RuntimeError: mat1 and mat2" in shown and PACKAGE not in shown and "rushlight/_" not in shown, shown
