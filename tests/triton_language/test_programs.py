"""Small kernels give what real Triton's interpreter gave (stored)."""

import json

import numpy as np
import pytest
from tests.triton_language import programs

VALUES = json.loads(programs.STORED.read_text())


def test_every_program_has_values() -> None:
    assert set(VALUES) == set(programs.CASES)


def check(name: str, found: np.ndarray) -> None:
    wanted = np.array(VALUES[name], found.dtype).reshape(found.shape)
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-6)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", programs.CASES)
def test_program(name: str) -> None:
    check(name, programs.run(name))


@pytest.mark.cuda
@pytest.mark.parametrize("name", programs.CASES)
def test_program_on_a_gpu(name: str) -> None:
    check(name, programs.run(name, "cuda"))
