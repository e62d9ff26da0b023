"""`same`: compares a value with real PyTorch's; the header says which versions were tested."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.packages.environment import HERE, VALUES, WRITING, plain, rounded, runs_here, stored, torch_here

_written: dict[str, Any] = {}


def _listed() -> Iterator[str]:
    for line in (HERE / "packages.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line.partition("==")[0]


def pytest_report_header() -> list[str]:
    if not runs_here():
        return []
    found = []
    for name in _listed():
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} absent")
    return [f"torch: {torch_here()}", f"packages: {', '.join(found)}"]


def _differ(got: Any, wanted: Any, rtol: float, atol: float, path: str = "") -> str | None:
    """Where two nested values differ, or None."""
    if isinstance(wanted, list) and isinstance(got, list):
        if len(got) != len(wanted):
            return f"{path}: {len(got)} values, PyTorch has {len(wanted)}"
        pairs = [(str(i), g, w) for i, (g, w) in enumerate(zip(got, wanted, strict=True))]
    elif isinstance(wanted, dict) and isinstance(got, dict):
        if got.keys() != wanted.keys():
            return f"{path}: {sorted(got)}, PyTorch has {sorted(wanted)}"
        pairs = [(key, got[key], wanted[key]) for key in wanted]
    elif isinstance(wanted, float) or isinstance(got, float):
        close = math.isclose(got, wanted, rel_tol=rtol, abs_tol=atol) or (math.isnan(got) and math.isnan(wanted))
        return None if close else f"{path}: {got!r}, PyTorch has {wanted!r}"
    else:
        return None if got == wanted else f"{path}: {got!r}, PyTorch has {wanted!r}"
    return next((found for key, g, w in pairs if (found := _differ(g, w, rtol, atol, f"{path}.{key}"))), None)


@pytest.fixture
def same(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`same("loss", value)`: the value is what real PyTorch gave, to a relative `rtol`."""

    def check(what: str, value: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
        key = f"{request.node.name}/{what}"
        if WRITING:
            _written[key] = rounded(plain(value))
            return
        assert key in stored(), f"values.json has no {key}"
        difference = _differ(plain(value), stored()[key], rtol, atol)
        assert difference is None, f"{what}{difference}"

    return check


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if WRITING and _written:
        kept = {**stored(), **_written}
        VALUES.write_text(json.dumps(dict(sorted(kept.items())), indent=0).replace("\n", "\n") + "\n", encoding="utf-8")
