"""Support vector machines of `ai.onnx.ml`."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.ml.learning import transformed
from rushlight.onnx.importing.table import ML, operator

__all__: list[str] = []


def _kernel(x: Any, vectors: Any, kind: str, parameters: list[float]) -> Any:
    gamma, offset, degree = (*parameters, 0.0, 0.0, 0.0)[:3]
    if kind == "LINEAR":
        return torch.matmul(x, vectors.T)
    if kind == "POLY":
        return (gamma * torch.matmul(x, vectors.T) + offset) ** degree
    if kind == "SIGMOID":
        return torch.tanh(gamma * torch.matmul(x, vectors.T) + offset)
    if kind == "RBF":
        return torch.exp(-gamma * ((x[:, None] - vectors[None]) ** 2).sum(-1))
    raise ValueError(f"unknown kernel_type {kind!r}")


@operator("SVMRegressor", domain=ML)
def svm_regressor(
    x: Any,
    *,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: list[float],
    support_vectors: list[float] | None = None,
) -> Any:
    x = x.to(torch.float32)
    weights = torch.tensor(coefficients)
    if n_supports:
        vectors = torch.tensor(support_vectors).reshape(n_supports, -1)
        y = torch.matmul(_kernel(x, vectors, kernel_type, kernel_params or []), weights.reshape(-1, 1)) + rho[0]
    else:
        y = _kernel(x, weights.reshape(1, -1), kernel_type, kernel_params or []) + rho[0]
    return torch.where(y > 0, 1.0, -1.0) if one_class else transformed(y, post_transform)
