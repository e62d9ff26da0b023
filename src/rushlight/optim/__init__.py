"""Optimizers: they change parameters by their gradients. Learning-rate schedules are in `lr_scheduler`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PLACES = {
    "ASGD": "asgd",
    "Adafactor": "adafactor",
    "Adadelta": "adadelta",
    "Adagrad": "adagrad",
    "Adam": "adam",
    "AdamW": "adam",
    "Adamax": "adamax",
    "LBFGS": "lbfgs",
    "Muon": "muon",
    "NAdam": "nadam",
    "Optimizer": "optimizer",
    "RAdam": "radam",
    "RMSprop": "rmsprop",
    "Rprop": "rprop",
    "SGD": "sgd",
    "SparseAdam": "sparse_adam",
    "swap_in_optimizer_params_and_state": "swapping",
}
_PAGES = ("_adafactor", "_functional", "_muon", "adamw", "lr_scheduler", "optimizer", "swa_utils")

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop",
    "Rprop", "SGD", "SparseAdam", "lr_scheduler", "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PAGES or name in _PLACES.values():
        return import_module(f"{__name__}.{name}")
    if name not in _PLACES:
        raise AttributeError(f"rushlight.optim has no {name!r} yet")
    value = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_PAGES})
