"""The examples in the Triton language run, and check themselves against PyTorch's operators."""

import runpy
import sys
from pathlib import Path

import pytest

import rushlight
from rushlight import triton

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("triton_*.py"))


def test_there_are_six() -> None:
    assert len(EXAMPLES) == 6


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in list(sys.modules.items()):
        if name == "rushlight" or name.startswith("rushlight.triton"):
            monkeypatch.setitem(
                sys.modules, name.replace("rushlight.triton", "triton").replace("rushlight", "torch"), module
            )
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setattr(triton.testing, "do_bench", lambda run, *args, **kwargs: run() is None or 1.0)
    runpy.run_path(str(path), run_name="__main__")
    assert sys.modules["torch"] is rushlight
