"""Where the tests of other people's packages may run, and how their values are compared with real PyTorch's.

`make test-packages` installs the packages without PyTorch and runs these tests with `python -m rushlight -m pytest`: every `import torch` in them, and
in the packages, is rushlight.  The values in `values.json` are real PyTorch's: `RUSHLIGHT_PACKAGES_WRITE=1 python -m pytest tests/packages`, in an
environment with the packages and with torch 2.13, writes them anew.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
VALUES = HERE / "values.json"
WRITING = os.environ.get("RUSHLIGHT_PACKAGES_WRITE") == "1"


def torch_here() -> str | None:
    """The version of what `import torch` finds."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def runs_here() -> bool:
    """Whether torch is rushlight in this process, or the values of the real one are being written."""
    return "rushlight" in (torch_here() or "") or WRITING


def needs(*modules: str) -> Callable[[Any], Any]:
    """A test of packages: skipped where one is absent, or where torch is not rushlight."""
    absent = [name for name in modules if importlib.util.find_spec(name) is None] if runs_here() else []
    reason = (
        f"{', '.join(absent)} not installed: make test-packages"
        if runs_here()
        else "runs under the name torch: make test-packages"
    )

    def mark(test: Any) -> Any:
        return pytest.mark.packages(pytest.mark.skipif(bool(absent) or not runs_here(), reason=reason)(test))

    return mark


@functools.cache
def stored() -> dict[str, Any]:
    """What real PyTorch gave."""
    return json.loads(VALUES.read_text(encoding="utf-8")) if VALUES.is_file() else {}


def plain(value: Any) -> Any:
    """Tensors and arrays as nested lists of numbers."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "detach"):
        value = value.detach().tolist()
        return plain(value) if isinstance(value, list) else value
    return plain(value.tolist()) if hasattr(value, "tolist") else value


def rounded(value: Any) -> Any:
    """Nine digits say all of a float32."""
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return float(f"{value:.9g}") if isinstance(value, float) else value
