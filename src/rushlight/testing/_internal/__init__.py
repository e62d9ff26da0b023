"""Names of PyTorch's own test suite for tests of other packages, as `torch.testing._internal`.

A test case whose `assertEqual` knows tensors, parametrized tests, tests for device types, marks, and lists of dtypes.
The database of operators (`common_methods_invocations`) is not here.
"""

from __future__ import annotations
