"""PyTorch's own samples of operators (`op_db`) as calls of both libraries."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
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
# Eigenvectors are right with any phase; the first ones of a sample may be others than PyTorch's.
ANY_PHASE = frozenset(("linalg.eig", "linalg.eigh"))
FEW_ELEMENTS = 800


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
            return value if lib is oracle else constant(value)

        args, kwargs = build(self.args), build(self.kwargs)
        found = (self.oracle_op if lib is oracle else self.mine_op)(*args, **kwargs)
        return flat(found)


def flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flat(v)]
    return [value]


def constant(value: Any) -> Any:
    """Our counterpart of an argument that is no tensor."""
    if isinstance(value, (oracle.dtype, oracle.memory_format, oracle.layout)):
        return getattr(rushlight, str(value).split(".")[-1])
    if isinstance(value, oracle.nn.PairwiseDistance):
        return rushlight.nn.PairwiseDistance(value.norm, value.eps, value.keepdim)
    return value


def to_mine(t: Any) -> Any:
    """A copy with the strides, the offset and the whole storage of PyTorch's tensor."""
    t = t.detach().resolve_conj().resolve_neg()
    count = t.untyped_storage().nbytes() // t.itemsize
    whole = oracle.as_strided(t, (count,), (1,), 0)
    return rushlight.from_numpy(whole.numpy().copy()).as_strided(tuple(t.shape), t.stride(), t.storage_offset())


def to_array(t: Any) -> Any:
    if isinstance(t, oracle.Tensor) and t._is_zerotensor():
        t = oracle.zeros(t.shape, dtype=t.dtype)
    t = t.detach().resolve_conj().resolve_neg()
    wider = {"bfloat16": "float32", "complex32": "complex64"}.get(str(t.dtype).split(".")[-1])  # NumPy lacks them
    return (t.to(getattr(oracle if isinstance(t, oracle.Tensor) else rushlight, wider)) if wider else t).numpy()


def rebound(function: types.FunctionType) -> Any:
    """A function of PyTorch's tests, with our package as its global `torch`."""
    mine = types.FunctionType(
        function.__code__, {**function.__globals__, "torch": rushlight}, function.__name__, function.__defaults__
    )
    mine.__kwdefaults__ = function.__kwdefaults__
    return mine


def named(name: str) -> Any:
    """The function or method of that name here, or None."""
    try:
        found = functools.reduce(getattr, name.split("."), rushlight)
    except (AttributeError, ImportError, NotImplementedError):
        found = None
    return found if callable(found) else getattr(rushlight.Tensor, name, None)


def found_here(info: Any) -> Any:
    """The function here that PyTorch's entry calls, or None."""
    if named(info.name) is None:
        return None
    if isinstance(info.op, types.FunctionType) and info.op.__module__.startswith("torch.testing."):
        return rebound(info.op)
    return named(info.name)


def infos() -> list[Any]:
    seen, kept = set(), []
    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        if info.name in LEFT_OUT or info.name.startswith(("_", "torch.", "jiterator", "sparse.")) or name in seen:
            continue
        seen.add(name)
        if named(info.name) is not None and info.supported_dtypes("cpu"):
            kept.append(info)
    return kept


def first_sample(info: Any, dtype: Any) -> Sample | None:
    """The first call of an operator that PyTorch takes: one of few elements, else the smallest.  None where no call takes tensors.

    Both libraries agree on it, or this fails.
    """
    function, larger = found_here(info), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in info.sample_inputs("cpu", dtype, requires_grad=False):
            sample = Sample(info, each, function)
            if size(sample) > FEW_ELEMENTS:
                larger.append(sample)
            elif sample.tensors and agreed(sample):
                return sample
        return next(filter(agreed, sorted(larger, key=size)), None)


def size(sample: Sample) -> int:
    return sum(t.numel() for t in sample.tensors)


def agreed(sample: Sample) -> bool:
    """Whether a call has one result in PyTorch, which then is ours too."""
    try:
        want, again = (sample.call(oracle, sample.tensors) for _ in range(2))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    if not all(map(close, again, want)):
        return False
    got = sample.call(rushlight, [to_mine(t) for t in sample.tensors])
    same = len(want) == len(got) and all(map(close, got, want))
    assert same or sample.info.name in ANY_PHASE, f"{sample.info.name}: {got} instead of {want}"
    return same


def close(mine: Any, theirs: Any, tolerance: float = 1e-6) -> bool:
    if not isinstance(theirs, oracle.Tensor):
        return isinstance(mine, type(theirs)) and mine == theirs
    a, b = to_array(mine), to_array(theirs)
    if a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
