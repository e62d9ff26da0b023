"""Graphs on emulated devices by the reference's interpretation, as work of a stream: what there is without kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.reference.backend import ReferenceExecutable, load_elements, store_elements
from rushlight._backends.reference.run import run
from rushlight._graph.core import Graph
from rushlight._types.device import Device
from rushlight._types.layout import extent

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["StreamedReference"]


class StreamedReference(ReferenceExecutable):
    """One graph, interpreted when its stream comes to it; results have memory at once, as those of kernels have."""

    __slots__ = ("name", "region")

    def __init__(
        self,
        backend: CudaBackend,
        region: Any,
        graph: Graph,
        in_layouts: Sequence[tuple[int, ...] | None],
        out_layouts: Sequence[tuple[int, ...]],
        device: Device,
        aliases: Mapping[int, int],
    ) -> None:
        super().__init__(backend, graph, in_layouts, out_layouts, device, aliases)
        self.region = region
        self.name = "_".join(dict.fromkeys(node.prim.name for node in graph.nodes)) or "copy"

    def __call__(self, *words: Any) -> Any:
        """Start the graph on addresses of tensors, then numbers; see `Executable`."""
        backend: Any = self.backend
        tensors = sum(not v.weak for v in self.graph.inputs)
        given, numbers = iter(words[:tensors]), iter(words[tensors:])
        places: list[Any] = []
        for value in self.graph.inputs:
            if not value.weak:
                places.append(next(given))
            else:
                places.append(complex(next(numbers), next(numbers)) if value.dtype.is_complex else next(numbers))
        fresh = {k: self._fresh(k) for k in range(len(self.graph.outputs)) if k not in self.aliases}
        targets = [fresh[k].ptr if k in fresh else places[self.aliases[k]] for k in range(len(self.graph.outputs))]
        stream = backend.enter(self.device)
        backend.launch.note(self.name)
        addresses = tuple(a for a in (*words[:tensors], *targets) if a)
        backend.driver.submit(stream, self.name, lambda: self._interpret(places, targets), addresses)
        if backend.launch.blocking:
            backend.driver.cuStreamSynchronize(stream)
        made = list(fresh.values())
        return made[0] if len(made) == 1 else tuple(made) if made else None

    def _fresh(self, number: int) -> Any:
        value = self.graph.outputs[number]
        nbytes = _span(value.shape, self.out_layouts[number], value.dtype.itemsize)
        return self.backend.allocate(nbytes, self.device)

    def _interpret(self, places: Sequence[Any], targets: Sequence[int]) -> None:
        layouts = [() if layout is None else layout for layout in self.in_layouts]
        arguments = [
            place if value.weak else load_elements(self._bytes(place, value, layout), value.dtype, value.shape, layout)
            for place, value, layout in zip(places, self.graph.inputs, layouts, strict=True)
        ]
        for k, array in enumerate(run(self.graph, arguments)):
            value, layout = self.graph.outputs[k], self.out_layouts[k]
            store_elements(self._bytes(targets[k], value, layout), value.dtype, value.shape, layout, array)

    def _bytes(self, address: int, value: Any, layout: Any) -> memoryview:
        nbytes = _span(value.shape, layout, value.dtype.itemsize)
        if not nbytes:
            return memoryview(b"")
        return memoryview((ctypes.c_ubyte * nbytes).from_address(self.region.visible(address))).cast("B")


def _span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Bytes from the first element to the end of the last."""
    return extent(shape, strides) * itemsize if 0 not in shape else 0
