"""Backends that get graphs of aten operators, forward and backward: `torch._dynamo.backends.common`.

>>> import rushlight as torch
>>> seen = []
>>> def compiler(gm, example_inputs):
...     seen.append(len(list(gm.graph.nodes)))
...     return gm.forward
>>> torch.compile(lambda x: x.sin(), backend=aot_autograd(fw_compiler=compiler))(torch.zeros(2))
tensor([0., 0.])
>>> seen
[3]
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight import device as Device
from rushlight import empty_strided, float32
from rushlight._interface.base import import_whole

__all__ = [
    "AotAutograd",
    "aot_autograd",
    "device_from_inputs",
    "dtype_from_inputs",
    "fake_tensor_unsupported",
    "mem_efficient_fusion_kwargs",
]

log = logging.getLogger(__name__)


class AotAutograd:
    """A backend for `torch.compile`: traces forward and backward and hands them to the compilers of `kwargs`, which
    are arguments of `aot_module_simplified`; `bw_compiler` is by default `fw_compiler`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.__name__ = "compiler_fn"
        self.kwargs = kwargs

    def __call__(self, gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        if kwargs:
            log.warning("aot_autograd-based backend ignoring extra kwargs %s", kwargs)
        options = dict(self.kwargs)
        if callable(options.get("decompositions")):
            options["decompositions"] = options["decompositions"]()
        options["bw_compiler"] = options.get("bw_compiler") or options["fw_compiler"]
        simplified = import_whole("rushlight._functorch.aot_autograd").aot_module_simplified
        return simplified(gm, example_inputs, **options)


def aot_autograd(**kwargs: Any) -> AotAutograd:
    """`AotAutograd(**kwargs)`."""
    return AotAutograd(**kwargs)


def mem_efficient_fusion_kwargs(use_decomps: bool) -> dict[str, Any]:
    """Arguments of `aot_autograd` that keep as little as possible for backward and run the graphs compiled."""
    compile_page = import_whole("rushlight._functorch.compilers")
    options: dict[str, Any] = {
        "fw_compiler": compile_page.nop,
        "bw_compiler": compile_page.nop,
        "partition_fn": import_whole("rushlight._functorch.partitioners").min_cut_rematerialization_partition,
    }
    if use_decomps:
        options["decompositions"] = import_whole("rushlight._decomp").core_aten_decompositions()
    return options


def fake_tensor_unsupported(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A backend that reads elements, as one that may be given fake inputs: it gets tensors of zeros."""

    def real(value: Any) -> Any:
        if not isinstance(value, import_whole("rushlight._subclasses.fake_tensor").FakeTensor):
            return value
        shape, strides = (tuple(int(n) for n in numbers) for numbers in (value.shape, value.stride()))
        made = empty_strided(shape, strides, dtype=value.dtype, device=value.device)
        return made.zero_().requires_grad_(value.requires_grad)

    @functools.wraps(fn)
    def wrapper(model: Any, inputs: Any, **kwargs: Any) -> Any:
        return fn(model, [real(value) for value in inputs], **kwargs)

    return wrapper


def device_from_inputs(example_inputs: Iterable[Any]) -> Device:
    """The device of the first input that has one, else the CPU."""
    return next((each.device for each in example_inputs if hasattr(each, "device")), Device("cpu"))


def dtype_from_inputs(example_inputs: Iterable[Any]) -> Any:
    """The dtype of the first input that has one, else float32."""
    return next((each.dtype for each in example_inputs if hasattr(each, "dtype")), float32)
