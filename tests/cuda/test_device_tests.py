"""Tests that are written on `torch.testing._internal`: on a GPU, too, where there is one."""

from __future__ import annotations

import unittest
from typing import Any

import pytest

import rushlight as torch
from rushlight.testing._internal import common_cuda, common_utils
from rushlight.testing._internal import common_device_type as devices

pytestmark = pytest.mark.cuda


def classes_of(generic: Any, **options: Any) -> dict[str, Any]:
    """Classes that `instantiate_device_type_tests` makes."""
    scope: dict[str, Any] = {generic.__name__: generic}
    devices.instantiate_device_type_tests(generic, scope, **options)
    return scope


def outcome(made: Any) -> Any:
    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(made).run(found)
    return found


class Written(common_utils.TestCase):
    __test__ = False  # pytest would run it as it stands

    def test_place(self, device: Any) -> None:
        self.assertEqual(torch.ones(2, device=device).device.type, self.device_type)  # type: ignore[attr-defined]

    @devices.onlyCUDA
    @devices.dtypes(torch.float32, torch.bfloat16)
    def test_dtype(self, device: Any, dtype: Any) -> None:
        self.assertEqual((torch.ones(2, device=device, dtype=dtype) * 2).tolist(), [2.0, 2.0])

    @devices.skipCUDAIf(True, "why")
    def test_elsewhere(self, device: Any) -> None:
        self.assertEqual(device, "cpu")

    @devices.largeTensorTest("900GB")
    def test_large(self, device: Any) -> None:
        self.fail()


def test_classes_for_each_device() -> None:
    scope = classes_of(Written)
    assert set(scope) == {"WrittenCPU", "WrittenCUDA"} and devices.get_all_device_types() == ["cpu", "cuda"]
    assert {name for name in vars(scope["WrittenCUDA"]) if name.startswith("test")} == {
        "test_place_cuda", "test_dtype_cuda_float32", "test_dtype_cuda_bfloat16", "test_elsewhere_cuda", "test_large_cuda",
    }  # fmt: skip
    for name, skipped in (("WrittenCPU", 3), ("WrittenCUDA", 2)):
        found = outcome(scope[name])
        assert found.wasSuccessful() and len(found.skipped) == skipped, found.failures + found.errors


def test_what_is_here() -> None:
    assert common_utils.TEST_CUDA and common_utils.TEST_ACCELERATOR and common_cuda.TEST_CUDA
    capability = torch.cuda.get_device_capability()
    assert common_cuda.SM80OrLater is (capability >= (8, 0)) and common_cuda.SM100OrLater is (capability >= (10, 0))
    assert common_cuda.TEST_MULTIGPU is (torch.cuda.device_count() > 1)


def test_cycles_are_measured() -> None:
    assert common_utils.get_cycles_per_ms() > 0
    with pytest.raises(RuntimeError, match="none of type xpu"):
        common_utils.get_cycles_per_ms("xpu")


def test_leaks_are_found() -> None:
    case, kept = common_utils.TestCase(), []
    with case.assertLeaksNoCudaTensors():
        torch.ones(5, device="cuda")
    with pytest.raises(AssertionError, match="leaks"), case.assertLeaksNoCudaTensors("this test"):
        kept.append(torch.ones(5, device="cuda"))
