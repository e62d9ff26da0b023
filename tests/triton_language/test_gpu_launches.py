"""Launches on emulated GPUs: what bad arguments get, who is named for a kernel that failed, and what `explain` lists."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

KERNELS = """
import rushlight as torch
from rushlight import triton
from rushlight.triton import language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

@triton.jit
def wild(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK) * 100000000, 1.0)
"""
EXPLAIN = """
def doubled(x):
    out = torch.empty_like(x)
    add[(4,)](x, x, out, 200, BLOCK=64)
    return out * 2
x = torch.ones(200, device=DEVICE)
for f in (doubled, torch.compile(doubled)):
    report = torch.explain(f)(x)
    again = torch.explain(f)(x)
    page = again.html(PATH).read_text()
    for program in getattr(again, "programs", ()):
        assert all(row.seconds > 0 and row.ratio > 0 for row in program.times()) and program.times()
    assert (report.result == 4).all()
    assert "doubled: add[(4,)](x, x, out, 200, BLOCK=64)" in str(again)
    assert ".entry add" in page or DEVICE == "cpu"
assert torch.explain(doubled)(x).kernels[:1] == ["add"]
doubled(x)
assert torch.explain(torch.exp)(x).operators == ["exp"]
"""
FAULTS = """
x, y = torch.ones(64, device="cuda"), torch.ones(64)
for given, place in (((x, y), 1), ((y, x), 0), ((x, y.to("cuda:1")), 1)):
    try:
        add[(1,)](*given, x, 64, BLOCK=64)
        raise SystemExit("no error")
    except ValueError as error:
        assert f"Pointer argument (at {place}) cannot be accessed from Triton" in str(error), error
        assert "(cpu tensor?)" in str(error) or given[1].device.index == 1
        assert ".to('cuda:0')" in str(error), error
for call in (lambda: torch.cuda.set_device(9), lambda: torch.ones(1, device="cuda:9")):
    try:
        call()
        raise SystemExit("no error")
    except torch.AcceleratorError as error:
        assert "there are 2 devices" in str(error)
wild[(1,)](x, BLOCK=64)
try:
    torch.cuda.synchronize()
    raise SystemExit("no error")
except torch.AcceleratorError as error:
    assert error.error_code == 700 and "The kernel 'wild' was started at" in str(error), error
print("fine")
"""


def ran(program: str, tmp_path, **options: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(KERNELS + program)
    environment = {**os.environ, "RUSHLIGHT_CUDA": "emulated", **options}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_faults_name_arguments_and_kernels(tmp_path) -> None:
    assert ran(FAULTS, tmp_path, RUSHLIGHT_EMULATED_CUDA_DEVICES="2") == "fine\n"


def test_a_launch_that_waits_is_the_line_that_fails(tmp_path) -> None:
    program = """
x = torch.ones(64, device="cuda")
try:
    wild[(1,)](x, BLOCK=64)
    raise SystemExit("no error")
except torch.AcceleratorError as error:
    assert error.error_code == 700, error
"""
    ran(program, tmp_path, CUDA_LAUNCH_BLOCKING="1")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_explain_lists_launches(tmp_path, device: str) -> None:
    """Between operators, and between the programs of a compiled function."""
    ran(f"DEVICE, PATH = {device!r}, {str(tmp_path / 'page.html')!r}\n{EXPLAIN}", tmp_path)
