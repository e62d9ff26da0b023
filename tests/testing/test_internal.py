"""`torch.testing._internal`: a file of tests that is written on it has the same tests, with the same ends, as under PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).with_name("internal_program.py"))
NAMES = """
    TestDevicesCPU.test_cuda_cpu TestDevicesCPU.test_device_cpu TestDevicesCPU.test_dtypes_cpu_float32 TestDevicesCPU.test_dtypes_cpu_int64
    TestDevicesCPU.test_tolerances_k_1_cpu_float32 TestDevicesCPU.test_tolerances_k_1_cpu_float64 TestDevicesCPU.test_tolerances_k_2_cpu_float32
    TestDevicesCPU.test_tolerances_k_2_cpu_float64 TestPlain.test_even_x_0_even TestPlain.test_even_x_2_even TestPlain.test_product_x3_two
    TestPlain.test_product_x3_y_1_float32 TestPlain.test_product_x_1_two TestPlain.test_product_x_1_y_1_float32 TestPlain.test_product_x_2_5_two
    TestPlain.test_product_x_2_5_y_1_float32 TestPlain.test_product_x_a_two TestPlain.test_product_x_a_y_1_float32 TestPlain.test_some_fail_x_0
    TestPlain.test_some_fail_x_1 TestPlain.test_some_fail_x_2 TestPlain.test_tools TestPlain.test_what_is_equal
"""


def test_a_file_of_tests_runs(run_python) -> None:
    names = run_python("-m", "rushlight", PROGRAM, "names", check=True).stdout
    assert sorted(names.replace("__main__.", "").split()) == sorted(NAMES.split())
    done = run_python("-m", "rushlight", PROGRAM)
    assert "Ran 23 tests" in done.stderr and "OK (skipped=5, expected failures=1)" in done.stderr, done.stderr


@pytest.mark.oracle
def test_a_file_of_tests_runs_as_under_pytorch() -> None:
    names = subprocess.run([sys.executable, PROGRAM, "names"], capture_output=True, text=True, check=True).stdout
    assert sorted(names.replace("__main__.", "").split()) == sorted(NAMES.split())
    # Where `CI` is set PyTorch writes its results by a package that is not among its requirements.
    own = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run([sys.executable, PROGRAM], env=own, capture_output=True, text=True, check=False)
    assert "Ran 23 tests" in done.stderr and "OK (skipped=5, expected failures=1)" in done.stderr, done.stderr
