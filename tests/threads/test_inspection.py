"""Reports of kernels, and the places that NVIDIA's tools are found in."""

from __future__ import annotations

import pytest
from bench.cuda_kernels import FLAGSHIPS

from rushlight._backends.cuda.reports.inspection import inspect_kernel
from rushlight._base.errors import MissingExtraError
from rushlight._native.nvidia import ptxas


def test_reports_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "find_tool", lambda name: None)
    report = inspect_kernel(FLAGSHIPS["transpose"](True).kernel)
    counts = report.counts()
    assert any(name.startswith("ld.global.v4") for name in counts) and counts["bar.sync"] == 1
    assert report.text().startswith(
        "transpose on sm_90a: 128 threads a block, 8192 bytes of shared memory\n  registers and"
    )
    assert ".visible .entry transpose(" in report.text(asm=True)
    with pytest.raises(MissingExtraError, match="ptxas is not installed"):
        ptxas.assemble(report.ptx, "sm_90a")


@pytest.mark.slow
def test_reports_with_nvidias_tools() -> None:
    if ptxas.find_tool("ptxas") is None:
        pytest.skip("ptxas is not installed: pip install rushlight[ptxas]")
    report = inspect_kernel(FLAGSHIPS["softmax"](True).kernel)
    assert report.registers is not None and report.registers > 16 and report.spills == 0
    assert "registers a thread, 0 bytes spilled" in report.text()


def test_occupancy() -> None:
    assert ptxas.occupancy("sm_90a", 1024, 64, 0) == (1, 0.5)
    assert ptxas.occupancy("sm_86", 128, 32, 50 * 1024) == (1, 128 / 1536)
    assert ptxas.occupancy("sm_80", 128, 24, 0) == (16, 1.0)
