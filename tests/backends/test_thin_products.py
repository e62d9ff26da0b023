"""Products of few rows, columns or steps where no BLAS library is there: packed like others, against NumPy in float64."""

from __future__ import annotations

import os
import subprocess
import sys

_PROGRAM = """
import numpy as np
import rushlight as torch

rng = np.random.default_rng(0)
sides = (1, 2, 3, 4, 5, 9, 33, 130)
wrong = []
for dtype, single in ((np.float32, 3e-6), (np.float64, 1e-14), (np.complex64, 1e-5)):
    for turn in range(30):
        m, n, k = (int(rng.choice(sides)) for _ in range(3))
        if turn % 3:
            k *= 7
        a, b, c = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n), (m, n)))
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        x = x.T.contiguous().T if turn % 2 else x
        y = y.T.contiguous().T if turn % 4 < 2 else y
        found = (x @ y).numpy(), torch.addmm(torch.from_numpy(c), x, y, beta=0.5, alpha=2).numpy(), (y.T @ x.T).T.numpy()
        exact = a.astype(np.complex128) @ b.astype(np.complex128)
        bound = single * k * max(np.abs(a).max() * np.abs(b).max(), 1)
        for got, want in zip(found, (exact, 2 * exact + 0.5 * c, exact)):
            if not np.abs(got - want).max() <= bound:
                wrong.append((dtype.__name__, m, n, k, turn, float(np.abs(got - want).max())))
assert not wrong, wrong[:5]
"""


def test_thin_products_without_a_library():
    environment = {**os.environ, "RUSHLIGHT_GEMM": "fixed", "RUSHLIGHT_BLAS_LIBRARY": "none"}
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, env=environment, timeout=120)
