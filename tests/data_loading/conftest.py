"""Datasets of these tests are often local classes: their workers are forked, whatever this Python does by default."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def forked_workers() -> Iterator[None]:
    """Fork by default, where the system can; tests of other ways to start a process ask for them by name."""
    before = multiprocessing.get_start_method(allow_none=True)
    if "fork" in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)
