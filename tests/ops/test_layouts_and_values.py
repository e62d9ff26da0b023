"""A few operators of `tools/sweeps/layouts_and_values.py`: their samples on other layouts, with special values, beside PyTorch."""

from __future__ import annotations

import argparse

import pytest

pytestmark = pytest.mark.oracle

NAMES = ("amax", "clamp", "masked_fill", "nn.functional.max_pool2d", "rsub", "where")
OPTIONS = argparse.Namespace(samples=2, rounds=1, seed=1, shown=1, forms="function,out,inplace,overlap", values=True)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_pytorchs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    from tools.sweeps import layouts_and_values as sweep

    info = next(each for each in sweep.op_db if each.name == name)
    for dtype in (torch.float32, torch.int64):
        if dtype in info.supported_dtypes("cpu"):
            run = sweep.Sweep(info, dtype, OPTIONS)
            run.run()
            assert set(run.seen) == {"calls"}, capsys.readouterr().out
