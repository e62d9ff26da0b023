"""Packages called with tensors."""

from __future__ import annotations

import os
from typing import Any

from rushlight._engine.core.memory import empty_spec
from rushlight._engine.core.tensor import Tensor
from rushlight._packages.loading import LoadedPackage, opened
from rushlight._types.device import CPU
from rushlight._types.dtype import BY_NAME
from rushlight._types.layout import contiguous_strides
from rushlight._types.spec import Spec

__all__ = ["TensorPackage", "load_tensors"]


class TensorPackage(LoadedPackage):
    """A loaded package that takes tensors or NumPy arrays, and gives tensors where it was given some."""

    _device = CPU

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.arguments(args, kwargs)
        if given and not any(isinstance(x, Tensor) for x in given):
            return super().__call__(*args, **kwargs)
        held = [self._tensor(x, k) for k, x in enumerate(given)]
        choice = self.choice([tuple(x._spec.shape) for x in held])
        made = []
        for (_, dtype, _), shape in zip(self.outputs, self.out_shapes(choice), strict=True):
            made.append(empty_spec(Spec.of(BY_NAME[dtype], self._device, shape, contiguous_strides(shape))))
        self.run([x._ptr for x in held], [x._ptr for x in made], choice)
        return self.result(made)

    def _tensor(self, x: Any, number: int) -> Tensor:
        """An input as a row-major tensor."""
        name, dtype, _ = self.inputs[number]
        if not isinstance(x, Tensor):
            raise TypeError(f"input {name!r} must be a tensor, not {type(x).__name__}")
        if x._spec.device is not self._device or x._spec.dtype.name.removeprefix("torch.") != dtype:
            raise TypeError(f"input {name!r} must be {dtype} on the CPU, not {x.dtype} on {x.device}")
        return x.resolve_conj().contiguous()


def load_tensors(path: str | os.PathLike[str], verify_weights: bool = False) -> TensorPackage:
    """The package in a file, for tensors (see `loading.load`)."""
    return TensorPackage(*opened(path, verify_weights))
