"""PyTorch's own samples of operators (`op_db`) as calls of both libraries."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch as oracle
from torch.testing._internal.common_methods_invocations import op_db

import rushlight

# Random, uninitialised, private or about memory: nothing to compare.
LEFT_OUT = frozenset((
    "bernoulli", "cauchy", "dropout", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "uniform", "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "nn.functional.gumbel_softmax", "svd_lowrank",
    "pca_lowrank", "native_dropout_backward", "nn.functional.feature_alpha_dropout", "to_sparse", "lobpcg",
))  # fmt: skip


class Sample:
    """One call: the function in both libraries, and the tensors among its arguments."""

    def __init__(self, info: Any, sample: Any, mine: Callable[..., Any]) -> None:
        self.info, self.mine_op, self.oracle_op = info, mine, info.op
        self.args, self.kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        self.tensors: list[Any] = []
        self._walk((self.args, self.kwargs))

    def _walk(self, value: Any) -> None:
        if isinstance(value, oracle.Tensor):
            self.tensors.append(value.detach())
        elif isinstance(value, (list, tuple)):
            for v in value:
                self._walk(v)
        elif isinstance(value, dict):
            for v in value.values():
                self._walk(v)

    def call(self, lib: Any, tensors: list[Any]) -> Any:
        """The results, as a flat list, for other tensors in place of the sample's."""
        rest = iter(tensors)

        def build(value: Any) -> Any:
            if isinstance(value, oracle.Tensor):
                return next(rest)
            if isinstance(value, (list, tuple)):
                items = [build(v) for v in value]
                return items if isinstance(value, list) else tuple(items)
            if isinstance(value, dict):
                return {k: build(v) for k, v in value.items()}
            if isinstance(value, oracle.dtype) and lib is rushlight:
                return getattr(rushlight, str(value).split(".")[-1])
            return value

        args, kwargs = build(self.args), build(self.kwargs)
        found = (self.oracle_op if lib is oracle else self.mine_op)(*args, **kwargs)
        return flat(found)


def flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flat(v)]
    return [value]


def to_mine(t: Any) -> Any:
    t = t.detach().resolve_conj().resolve_neg()
    return rushlight.from_numpy(t.numpy().copy())


def to_array(t: Any) -> Any:
    if isinstance(t, oracle.Tensor) and t._is_zerotensor():
        t = oracle.zeros(t.shape, dtype=t.dtype)
    return t.detach().resolve_conj().resolve_neg().numpy() if isinstance(t, oracle.Tensor) else t.detach().numpy()


def found_here(name: str) -> Any:
    """The operator of that name here, or None."""
    try:
        return functools.reduce(getattr, name.split("."), rushlight)
    except (AttributeError, ImportError, NotImplementedError):
        return getattr(rushlight.Tensor, name, None)


def infos() -> list[Any]:
    seen, kept = set(), []
    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        if info.name in LEFT_OUT or info.name.startswith(("_", "torch.", "jiterator", "sparse.")) or name in seen:
            continue
        seen.add(name)
        if found_here(info.name) is not None:
            kept.append(info)
    return kept


def samples_of(info: Any, dtype: Any, count: int) -> Iterator[Sample]:
    """The first calls of one operator that have few elements, and on which both libraries agree."""
    if dtype not in info.supported_dtypes("cpu"):
        return
    given = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in info.sample_inputs("cpu", dtype, requires_grad=False):
            sample = Sample(info, each, found_here(info.name))
            if sum(t.numel() for t in sample.tensors) > 800 or not sample.tensors:
                continue
            try:
                want = sample.call(oracle, sample.tensors)
                got = sample.call(rushlight, [to_mine(t) for t in sample.tensors])
                agree = len(want) == len(got) and all(close(g, w) for g, w in zip(got, want))
            except Exception:
                continue
            if agree:
                given += 1
                yield sample
            if given == count:
                return


def close(mine: Any, theirs: Any, tolerance: float = 1e-6) -> bool:
    if not isinstance(theirs, oracle.Tensor):
        return isinstance(mine, type(theirs)) and mine == theirs
    a, b = to_array(mine), to_array(theirs)
    if a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
