"""From a function of tensors to what a package is made of: the program, its weights, and what it takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rushlight._backends.ahead import CallLayout, Request, TensorInfo
from rushlight._backends.registry import backend_of
from rushlight._base.errors import PackageError
from rushlight._capture.recording import Recording
from rushlight._engine.core.tensor import Tensor
from rushlight._graph.packing import UnpackableError, packed_graph
from rushlight._types.device import CPU
from rushlight._types.layout import contiguous_strides, extent

__all__ = ["Names", "WeightStore", "captured"]

ALIGNMENT = 64  # bytes, of each weight


class WeightStore:
    """Weights one behind the other, each aligned; memory that was met before is not stored again."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._begins: dict[tuple[int, int], int] = {}

    def place(self, address: int, nbytes: int) -> int:
        """Where the bytes at an address begin among the weights."""
        known = self._begins.get((address, nbytes))
        if known is None:
            self.data += bytes(-len(self.data) % ALIGNMENT)
            known = self._begins[address, nbytes] = len(self.data)
            self.data += backend_of(CPU).window(address, nbytes)
        return known


class Names(NamedTuple):
    """Names of a program's inputs, and of weights by the identity of tensors."""

    inputs: Sequence[str]
    weights: Mapping[int, str]


def captured(
    function: Callable[..., Sequence[Tensor]],
    tensors: Sequence[Tensor],
    names: Names,
    store: WeightStore,
    options: Mapping[str, Any] | None = None,
) -> tuple[Request, CallLayout]:
    """The program of `function(*tensors)`, which returns a list of tensors.  What else it reads are weights.

    PackageError for a program that writes to weights or inputs, draws random numbers, or asks for elements.
    """
    tensors = [_plain(x) for x in tensors]
    with Recording() as recording:
        standing = [recording.stand_in(x) for x in tensors]
        outputs = _apart(function(*standing), recording, standing)
        compiled = recording.finish(outputs, options=dict(options or {}))
    places = {id(x): k for k, x in enumerate(tensors)}
    return _Gathered(compiled, list(recording.inputs), places, names, store).program(options or {})


def _apart(outputs: Sequence[Tensor], recording: Any, standing: Sequence[Tensor]) -> list[Tensor]:
    """The outputs, each row-major in memory of its own."""
    found: list[Tensor] = []
    known = {x._storage.ptr for x in standing if x._storage is not None}
    for x in outputs:
        if not isinstance(x, Tensor):
            raise PackageError(f"a packaged program returns tensors, not {type(x).__name__}")
        x = x.detach().resolve_conj().resolve_neg()
        if not recording.is_recorded(x):
            x = recording.stand_in(x)
        alone = x._spec.contiguous and x._storage.ptr not in known and x._ptr == x._storage.ptr
        if not alone or not recording.writers.get(recording.memory_at(x._ptr).address):
            x = x.contiguous().clone() if x._spec.contiguous else x.contiguous()
        known.add(x._storage.ptr)
        found.append(x)
    return found


def _plain(x: Tensor) -> Tensor:
    """A tensor as a package takes it: row-major, as it is in memory."""
    x = x.detach().resolve_conj()
    return x if x._spec.contiguous else x.contiguous()


class _Gathered:
    """A compiled program taken apart."""

    def __init__(
        self, compiled: Any, held: Sequence[Tensor], places: Mapping[int, int], names: Names, store: WeightStore
    ) -> None:
        self.compiled, self.held, self.places, self.names, self.store = compiled, held, places, names, store

    def program(self, options: Mapping[str, Any]) -> tuple[Request, CallLayout]:
        """See `captured`."""
        compiled = self.compiled
        self._refuse()
        sources, weights = [], []
        for (kind, number, step), spec in zip(compiled._sources, compiled._in_specs, strict=True):
            if kind not in ("input", "constant"):
                raise PackageError("a packaged program takes tensors alone")
            tensor = self.held[number] if kind == "input" else compiled._held[number]
            if kind == "input" and id(tensor) in self.places:
                sources.append((self.places[id(tensor)], step))
                weights.append(-1)
                continue
            begin = self.store.place(tensor._ptr + step, extent(spec.shape, spec.strides) * spec.dtype.itemsize)
            sources.append((-1, begin))
            weights.append(begin)
        laid = compiled.laid()
        try:
            graph = packed_graph(compiled.graph)
        except UnpackableError as error:
            raise PackageError(f"the program cannot leave this process: {error}") from None
        request = Request(graph, laid.in_layouts, [strides for _, _, strides in laid.results], dict(options), weights)
        return request, CallLayout(self._inputs(), self._outputs(), sources, self._results())

    def _refuse(self) -> None:
        """PackageError for what a library cannot do."""
        compiled = self.compiled
        if compiled._changed:
            number = compiled._changed[0].given.content
            tensor = self.held[number]
            what = (
                f"input {self.places[id(tensor)]}"
                if id(tensor) in self.places
                else self.names.weights.get(id(tensor), "a weight")
            )
            raise PackageError(
                f"the program writes to {what}: a package holds weights that stay, and reads its inputs (module.eval() ends "
                "the updates of running statistics; a cache is taken and returned as a tensor)"
            )
        if compiled.draws:
            raise PackageError("the program draws random numbers (dropout, sampling), which a package cannot")
        if compiled.checks:
            raise PackageError("the program checks elements of tensors, which a package cannot")
        if compiled.communicates:
            raise PackageError("the program communicates with other processes, which a package cannot")
        if compiled._evaluation is not None:
            raise PackageError("the program computes Python numbers from elements of tensors, which a package cannot")

    def _inputs(self) -> list[TensorInfo]:
        found: list[Any] = [None] * len(self.places)
        for x in self.held:
            k = self.places.get(id(x))
            if k is not None:
                found[k] = _info(self.names.inputs[k], x._spec)
        return found

    def _results(self) -> list[int]:
        numbers = {each.number: k for k, each in enumerate(self.compiled.made) if each.kind == "storage"}
        return [numbers[n] for n in range(len(numbers))]

    def _outputs(self) -> list[TensorInfo]:
        made = self.compiled.made
        for each in made:
            if each.kind not in ("storage", "empty") or each.offset or not each.spec.contiguous:
                raise PackageError("a result that is no memory of its own")
        return [_info(f"output{k}", each.spec) for k, each in enumerate(made)]


def _info(name: str, spec: Any) -> TensorInfo:
    shape = tuple(int(n) for n in spec.shape)
    return TensorInfo(
        name,
        spec.dtype.name.removeprefix("torch."),
        shape,
        extent(shape, contiguous_strides(shape)) * spec.dtype.itemsize,
    )
