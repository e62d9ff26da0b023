"""Optimizers: they change parameters by their gradients. Learning-rate schedules are in `lr_scheduler`."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

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
_PAGES = ("_adafactor", "_functional", "_multi_tensor", "_muon", "adamw", "lr_scheduler", "optimizer", "swa_utils")

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop",
    "Rprop", "SGD", "SparseAdam", "lr_scheduler", "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip


__getattr__ = lazy_files(__name__, _PLACES, {*_PAGES, *_PLACES.values()})


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_PAGES})
