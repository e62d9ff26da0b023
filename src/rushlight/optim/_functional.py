"""The steps of optimizers as functions on lists of parameters, gradients and states, under the name of their page in
PyTorch.
"""

from __future__ import annotations

from typing import Any

from rushlight.optim import sparse_adam as _sparse_adam
from rushlight.optim.adadelta import adadelta
from rushlight.optim.adagrad import adagrad
from rushlight.optim.adam import adam, adamw
from rushlight.optim.adamax import adamax
from rushlight.optim.asgd import asgd
from rushlight.optim.nadam import nadam
from rushlight.optim.radam import radam
from rushlight.optim.rmsprop import rmsprop
from rushlight.optim.rprop import rprop
from rushlight.optim.sgd import sgd

__all__ = [
    "adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd", "sparse_adam",
]  # fmt: skip


def sparse_adam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    state_steps: list[int],
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: Any,
    maximize: bool,
) -> None:
    """One step of `SparseAdam` on lists; `state_steps` are numbers, counted by the caller."""
    group = {"eps": eps, "betas": (beta1, beta2), "lr": lr, "maximize": maximize}
    for param, grad, mean, square, step in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
        _sparse_adam.update(param, grad.coalesce(), {"exp_avg": mean, "exp_avg_sq": square, "step": step}, group)
