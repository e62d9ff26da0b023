"""Small kernels give what real Triton's interpreter gave (stored)."""

import json

import numpy as np
import pytest
from tests.triton_language import programs

VALUES = json.loads(programs.STORED.read_text())


def test_every_program_has_values() -> None:
    assert set(VALUES) == set(programs.CASES)


@pytest.mark.parametrize("name", programs.CASES)
def test_program(name: str) -> None:
    found = programs.run(name)
    wanted = np.array(VALUES[name], found.dtype).reshape(found.shape)
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)
    else:
        np.testing.assert_array_equal(found, wanted)
