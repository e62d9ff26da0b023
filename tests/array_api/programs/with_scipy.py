"""SciPy's functions of tensors: tensors come back, with the values that NumPy arrays give (run with SCIPY_ARRAY_API=1)."""

import warnings

import numpy as np
import scipy.cluster.vq as vq
import scipy.fft as fft
import scipy.integrate as integrate
import scipy.ndimage as ndimage
import scipy.signal as signal
import scipy.special as special
import scipy.stats as stats
from scipy.spatial.transform import Rotation

import rushlight as torch

rng = np.random.default_rng(0)
x, y, m = rng.random(20), rng.random(20), rng.random((4, 4))


def compare(name, got, want):
    if hasattr(want, "statistic"):
        got, want = (got.statistic, got.pvalue), (want.statistic, want.pvalue)
    if isinstance(want, (tuple, list)):
        for g, w in zip(got, want, strict=True):
            compare(name, g, w)
        return
    assert isinstance(got, torch.Tensor), (name, type(got))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-8, atol=1e-10, err_msg=name)


def check(function, *args, **keywords):
    def tensor(a):
        return torch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a

    compare(function.__name__, function(*map(tensor, args), **keywords), function(*args, **keywords))


warnings.simplefilter("ignore")
for name in "gammaln gamma erf erfc expit logit i0 i1e log_ndtr ndtr ndtri entr".split():
    check(getattr(special, name), x)
for name in "xlogy rel_entr betaln gammainc gammaincc".split():
    check(getattr(special, name), x + 1.5, y)
for name in ("logsumexp", "softmax", "log_softmax"):
    check(getattr(special, name), m, axis=1)
for name in (
    "skew kurtosis variation sem gmean hmean zscore moment entropy circmean circstd tmean tvar rankdata lmoment".split()
):
    check(getattr(stats, name), x)
for name in "ttest_ind ttest_rel pearsonr bartlett wilcoxon mannwhitneyu kruskal f_oneway levene".split():
    check(getattr(stats, name), x, y)
for name in ("skewtest", "normaltest", "jarque_bera"):
    check(getattr(stats, name), x)
check(stats.quantile, x, 0.3)
for name in "fft ifft rfft irfft dct idct dst hfft fftshift".split():
    check(getattr(fft, name), x)
for name in "fft2 fftn rfftn dctn".split():
    check(getattr(fft, name), m)
for name in ("convolve", "fftconvolve", "oaconvolve"):
    check(getattr(signal, name), x, y[:5])
check(signal.lfilter, np.array([1.0, 0.5]), np.array([1.0, -0.2]), x)
check(signal.hilbert, x)
check(signal.detrend, x)
check(ndimage.gaussian_filter, m, sigma=1)
check(ndimage.zoom, m, 2.0)
for name in ("trapezoid", "cumulative_trapezoid"):
    check(getattr(integrate, name), x)
check(vq.whiten, m)
check(vq.vq, m, m[:2])
quaternion = np.array([0.1, 0.2, 0.3, 0.9])
compare(
    "Rotation", Rotation.from_quat(torch.from_numpy(quaternion)).as_matrix(), Rotation.from_quat(quaternion).as_matrix()
)
