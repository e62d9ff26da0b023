"""Settings of a compiler that is not there, as `torch._dynamo.config`: they can be set, read back and patched, and nothing reads them.

Only settings that the program made itself can be read, apart from the few that programs look at first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["patch"]

# Public attributes of the module are the settings.
cache_size_limit = recompile_limit = 8
capture_scalar_outputs = capture_dynamic_output_shape_ops = suppress_errors = verbose = optimize_ddp = False
disable = "1" in (os.environ.get("TORCH_COMPILE_DISABLE"), os.environ.get("TORCHDYNAMO_DISABLE"))


@contextlib.contextmanager
def patch(settings: Any = None, value: Any = None, **more: Any) -> Iterator[None]:
    """Settings that hold inside a `with`, or in a decorated function: a name and a value, a dict, or by keyword."""
    here = vars(sys.modules[__name__])
    new = {**({settings: value} if isinstance(settings, str) else settings or {}), **more}
    before = {name: here[name] for name in new if name in here}
    here.update(new)
    try:
        yield
    finally:
        for name in new:
            del here[name]
        here.update(before)
