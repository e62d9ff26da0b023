"""scikit-learn's estimators and metrics on tensors: tensors come back, with the values that NumPy arrays give (run with SCIPY_ARRAY_API=1)."""

import warnings

import numpy as np
import sklearn.metrics as metrics
import sklearn.metrics.pairwise as pairwise
from sklearn import config_context
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.preprocessing import (
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)

import rushlight as torch

warnings.simplefilter("ignore")
x, y = make_classification(random_state=0, n_samples=80, n_features=6)
rng = np.random.default_rng(0)
guess, score = (rng.random(80) > 0.4).astype(int), rng.random(80) + 1


def check(name, function, *args, tolerance=1e-6):
    want = function(*args)
    with config_context(array_api_dispatch=True):
        got = function(*[torch.from_numpy(a.copy()) for a in args])
    for g, w in zip(got, want, strict=True) if isinstance(want, (tuple, list)) else [(got, want)]:
        assert isinstance(g, torch.Tensor) == isinstance(w, np.ndarray), (name, type(g), type(w))
        np.testing.assert_allclose(
            g.numpy() if isinstance(g, torch.Tensor) else g, w, rtol=tolerance, atol=tolerance, err_msg=name
        )


for scaler in (StandardScaler, MinMaxScaler, MaxAbsScaler, Normalizer, PolynomialFeatures):
    check(scaler.__name__, lambda a, scaler=scaler: scaler().fit_transform(a), x)
check("PCA", lambda a: abs(PCA(3, svd_solver="full").fit_transform(a)), x)
check("Ridge", lambda a, b: Ridge(solver="svd").fit(a, b).predict(a), x, score)
check("LDA", lambda a, b: LinearDiscriminantAnalysis().fit(a, b).predict_proba(a), x, y)
check("LabelEncoder", lambda b: LabelEncoder().fit_transform(b), y)
check(
    "mixture",
    lambda a: GaussianMixture(2, init_params="random_from_data", random_state=0).fit(a).predict_proba(a),
    x,
    tolerance=1e-3,
)
check("split", lambda a, b: train_test_split(a, b, random_state=0), x, y)
check("cross validation", lambda a, b: cross_val_predict(LinearDiscriminantAnalysis(), a, b), x, y)
for name in "accuracy_score f1_score precision_score recall_score jaccard_score zero_one_loss hamming_loss confusion_matrix".split():
    check(name, getattr(metrics, name), y, guess)
for (
    name
) in "mean_squared_error mean_absolute_error r2_score explained_variance_score max_error mean_tweedie_deviance".split():
    check(name, getattr(metrics, name), score, score[::-1].copy())
for name in "cosine_similarity euclidean_distances linear_kernel rbf_kernel polynomial_kernel sigmoid_kernel".split():
    check(name, getattr(pairwise, name), x[:10], x[10:20])
