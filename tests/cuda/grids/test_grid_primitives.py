"""Every primitive's own samples, as block kernels by the reference interpreter, against its NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.grids.grid_harness import check

from rushlight._backends.cuda.externs import EXTERNS
from rushlight._prims import PRIMITIVES
from rushlight._types.dtype import BY_NAME

GENERATED = [p for p in PRIMITIVES.values() if p.lower[0] != "extern"]
DECOMPOSED = [p for p in PRIMITIVES.values() if p.lower[0] == "extern" and p.name not in EXTERNS and p.decompose]


def check_samples(primitive):
    for arrays, params in primitive.samples():
        arrays = [np.asarray(a) for a in arrays]
        single = any(a.dtype.name in ("float32", "complex64", "float16") for a in arrays)
        dtypes = [BY_NAME[a.dtype.name] for a in arrays]
        tolerance = {"rtol": 2e-5, "atol": 1e-5} if single else {"rtol": 1e-10, "atol": 1e-10}
        check(lambda *xs, params=params: primitive(*xs, **params), *arrays, dtypes=dtypes, **tolerance)


@pytest.mark.parametrize("primitive", GENERATED, ids=lambda p: p.name)
def test_samples_as_kernels(primitive):
    check_samples(primitive)


@pytest.mark.slow
@pytest.mark.parametrize("primitive", DECOMPOSED, ids=lambda p: p.name)
def test_samples_as_decompositions(primitive):
    try:
        check_samples(primitive)
    except NotImplementedError as error:
        pytest.skip(str(error))
