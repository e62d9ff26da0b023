"""Gradients of random programs, looked at in random ways: those of a compiled program have eager's bits.

`python tools/compiled/random_programs.py --by gradients` draws others for as long as one likes.
"""

from __future__ import annotations

import pytest
from tests.gradient_programs import USES, Program, disagreement

import rushlight as torch
from rushlight._capture.bytecode.versions import supported

pytestmark = pytest.mark.skipif(not supported(), reason="functions are not compiled on this version of Python")


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int) -> None:
    torch._dynamo.reset()
    assert not disagreement(Program(seed), seed % len(USES))
