"""Programs that say `import torch` reach SciPy through array-api-compat's layer for PyTorch, which SciPy carries (run with SCIPY_ARRAY_API=1)."""

import warnings

import numpy as np
import scipy.signal as signal
import scipy.special as special
import scipy.stats as stats
import torch

warnings.simplefilter("ignore")
x = np.random.default_rng(0).random(20)
for function, args in (
    (stats.skew, (x,)), (special.logsumexp, (x,)), (signal.correlate, (x, x[:4])), (stats.zscore, (x,)), (stats.pearsonr, (x, x**2)),
):  # fmt: skip
    got, want = function(*[torch.from_numpy(a.copy()) for a in args]), function(*args)
    got, want = (getattr(v, "statistic", v) for v in (got, want))
    assert isinstance(got, torch.Tensor), (function, type(got))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-8, atol=1e-10)

# What that layer asks of the functions below it.
x = torch.ones(2, 3)
assert torch.amax(x, None).shape == () and torch.amin(x, dim=None, keepdim=True).shape == (1, 1)
assert torch.roll(x, 1, None).shape == (2, 3)
assert x.sum(dtype=float).dtype is torch.float64 and x.double().view(int).dtype is torch.int64
