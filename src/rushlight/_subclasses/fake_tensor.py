"""`torch._subclasses.fake_tensor`: nothing is a fake tensor; making one raises NotImplementedError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from rushlight._interface.base import absent_class

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake", "unset_fake_temporarily"]

_WHY = "tensors on the device 'meta' have shapes and no data"
FakeTensor = absent_class("torch._subclasses.fake_tensor.FakeTensor", _WHY)
FakeTensorMode = absent_class("torch._subclasses.fake_tensor.FakeTensorMode", _WHY)


def is_fake(x: Any) -> bool:
    """False."""
    return False


@contextlib.contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """A context without a mode that makes fake tensors, as all are."""
    yield
