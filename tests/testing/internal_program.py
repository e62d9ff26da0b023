"""A file of tests as other packages write them, on `torch.testing._internal`; `names` prints the tests, anything else runs them.

It runs under rushlight's name torch, and under PyTorch.
"""

import sys
import unittest

import numpy as np
import torch
from torch.testing._internal.common_device_type import (
    dtypes,
    dtypesIfCUDA,
    instantiate_device_type_tests,
    onlyCUDA,
    tol,
    toleranceOverride,
)
from torch.testing._internal.common_dtype import all_types_and, floating_types
from torch.testing._internal.common_utils import (
    TestCase,
    decorateIf,
    gradcheck,
    instantiate_parametrized_tests,
    noncontiguous_like,
    parametrize,
    random_symmetric_pd_matrix,
    reparametrize,
    run_tests,
    subtest,
)


class TestPlain(TestCase):
    @parametrize("x", [1, 2.5, "a", None])
    @parametrize(
        "y,z", [(1, torch.float32), subtest((2, object), name="two", decorators=[unittest.skip("not this one")])]
    )
    def test_product(self, x, y, z):
        self.assertIn(y, (1, 2))

    @decorateIf(unittest.expectedFailure, lambda given: given["x"] == 2)
    @parametrize("x", range(3))
    def test_some_fail(self, x):
        self.assertNotEqual(x, 2)

    @reparametrize(
        parametrize("x", range(4)), lambda name, given: [(f"{name}_even", given)] if given["x"] % 2 == 0 else None
    )
    def test_even(self, x):
        self.assertEqual(x % 2, 0)

    def test_what_is_equal(self):
        one = torch.ones(2)
        for x, y in [
            (one, [1, 1]), (1, 1.0), (torch.tensor(2.0), 2), ({"a": [one]}, {"a": (one,)}), ("a", "a"), (float("nan"), float("nan")), (None, None),
            (np.ones(2), torch.ones(2, dtype=torch.float64)), (True, torch.tensor(True)), (1.0, 1.0 + 1e-7), (torch.Size([1, 2]), (1, 2)), ({1, 2}, {2, 1}),
            (torch.float32, torch.float32), (noncontiguous_like(one), one),
        ]:  # fmt: skip
            self.assertEqual(x, y)
        for x, y in [
            (one, torch.ones(2, dtype=torch.float64)), ([1, 2], [1, 3]), ([1, 2], [1, 2, 3]), ({"a": 1}, {"b": 1}), (one, one + 0.1), (1, 2), ("a", "b"),
            (one, torch.ones(3)), (1.0, 1.001), (None, 0), (torch.tensor(1.0), 2),
        ]:  # fmt: skip
            with self.assertRaises((AssertionError, TypeError)):
                self.assertEqual(x, y)
        self.assertEqual(one, torch.ones(2, dtype=torch.float64), exact_dtype=False)
        self.assertEqual(one, one + 0.1, atol=0.2, rtol=0)
        with self.assertRaisesRegex(AssertionError, "the reason"):
            self.assertEqual(1, 2, "the reason")

    def test_tools(self):
        self.assertTrue(gradcheck(torch.sin, (torch.randn(2, dtype=torch.double, requires_grad=True),)))
        torch.linalg.cholesky(random_symmetric_pd_matrix(4))
        self.assertEqual(all_types_and(torch.half)[-1], torch.half)
        self.assertExpectedInline(str([1, 2]), """[1, 2]""")


instantiate_parametrized_tests(TestPlain)


class TestDevices(TestCase):
    @dtypes(torch.float32, torch.int64)
    @dtypesIfCUDA(torch.float16)
    def test_dtypes(self, device, dtype):
        self.assertEqual(torch.ones(1, device=device, dtype=dtype).dtype, dtype)

    @onlyCUDA
    def test_cuda(self, device):
        raise RuntimeError("it runs")

    @dtypes(*floating_types())
    @parametrize("k", [1, 2])
    @toleranceOverride({torch.float32: tol(atol=1, rtol=0)})
    def test_tolerances(self, device, dtype, k):
        x = torch.ones(1)
        if dtype == torch.float32:
            self.assertEqual(x, x + 0.5)
        else:
            with self.assertRaises(AssertionError):
                self.assertEqual(x, x + 0.5)

    def test_device(self, device):
        self.assertEqual(torch.device(device).type, self.device_type)


instantiate_device_type_tests(TestDevices, globals(), only_for="cpu")

if __name__ == "__main__":
    if sys.argv[1:] == ["names"]:
        for group in unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]):
            for case in group:
                print(case.id())
    else:
        run_tests()
