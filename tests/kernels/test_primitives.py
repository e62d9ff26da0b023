"""Every primitive's own samples, on generated kernels, against its NumPy reference."""

from __future__ import annotations

import numpy as np
from tests.kernels.kernel_harness import check
from tests.rows import each_row

from rushlight._prims import PRIMITIVES
from rushlight._types.dtype import BY_NAME


def cases():
    for name, primitive in PRIMITIVES.items():
        for k, (arrays, params) in enumerate(primitive.samples()):
            yield name, f"{name}-{k}", (primitive, arrays, params)


@each_row(cases())
def test_sample(primitive, arrays, params):
    arrays = [np.asarray(a) for a in arrays]
    single = any(a.dtype.name in ("float32", "complex64", "float16") for a in arrays)
    dtypes = [BY_NAME[a.dtype.name] for a in arrays]
    check(
        lambda *xs: primitive(*xs, **params),
        *arrays,
        dtypes=dtypes,
        rtol=2e-5 if single else 1e-10,
        atol=1e-5 if single else 1e-10,
    )
