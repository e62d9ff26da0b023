"""Two threads that need the same code for the first time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rushlight._backends.cpu.runtime import stubs
from rushlight._native import native


@native("i64(i64)")
def twice(n):  # type: ignore[no-untyped-def]
    return 2 * n


def test_code_that_is_in_use_is_not_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    both, load = threading.Barrier(2), stubs.jit.load

    def load_together(*args: Any) -> Any:
        both.wait(60)
        return load(*args)

    monkeypatch.setattr(stubs.jit, "load", load_together)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(stubs.native_address(twice))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] == found[1]
