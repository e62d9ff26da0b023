"""Control flow: If, Loop, Scan; their bodies see the values around them."""

from __future__ import annotations

import itertools
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.table import Numbers, Value, operator
from rushlight.onnx.importing.values import Host, map_tensors, tensor

__all__: list[str] = []


def _one(x: Any) -> Any:
    return x[0] if isinstance(x, list) else x


@operator("If")
def if_(condition: Numbers, *, then_branch: Any, else_branch: Any, scope: Any) -> Any:
    return tuple((then_branch if _one(condition) else else_branch).run([], scope))


@operator("Loop")
def loop(trips: Numbers = None, condition: Numbers = None, *carried: Value, body: Any, scope: Any) -> Any:
    """Run the body until the count is reached or its condition is false; what it scans is stacked."""
    limit = None if trips is None else _one(trips)
    going = True if condition is None else bool(_one(condition))
    state, count = list(carried), len(carried)
    scanned: list[list[Any]] = [[] for _ in body.outputs[1 + count :]]
    for i in itertools.count():
        if not going or (limit is not None and i >= limit):
            break
        goes, *rest = body.run([Host([i], scalar=True), torch.tensor(going), *state], scope)
        going = True if goes is None else bool(tensor(goes).item())
        state = rest[:count]
        for found, value in zip(scanned, rest[count:], strict=True):
            found.append(tensor(value))
    return (*state, *[_stacked(found, 0) for found in scanned])


def _stacked(found: list[Any], axis: int) -> Any:
    return torch.stack(found, axis) if found else torch.zeros(0)


def _at(values: list[int] | None, i: int) -> int:
    return values[i] if values else 0


@operator("Scan", since=9)
def scan(
    *values: Value,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
    scope: Any,
) -> Any:
    """Run the body for every slice of the scanned inputs; states go on, other outputs are stacked."""
    count = len(values) - num_scan_inputs
    if num_scan_inputs < 1 or count < 0:
        raise ValueError(f"{num_scan_inputs} scanned inputs of {len(values)}")
    state = list(values[:count])
    sources = []
    for i, value in enumerate(values[count:]):
        axis = _at(scan_input_axes, i)
        slices = list(torch.unbind(tensor(value), axis))
        sources.append(slices[::-1] if _at(scan_input_directions, i) else slices)
    found: list[list[Any]] = [[] for _ in body.outputs[count:]]
    for parts in zip(*sources, strict=True):
        results = body.run([*state, *parts], scope)
        state = results[:count]
        for one, value in zip(found, results[count:], strict=True):
            one.append(tensor(value))
    stacked = []
    for i, one in enumerate(found):
        ordered = one[::-1] if _at(scan_output_directions, i) else one
        stacked.append(_stacked(ordered, _at(scan_output_axes, i)))
    return (*state, *stacked)


@operator("Scan", since=8)
def scan_batch(
    lengths: Any, *values: Value, body: Any, num_scan_inputs: int, directions: list[int] | None = None, scope: Any
) -> Any:
    """Operator set 8 scans every item of a batch by itself."""
    items = []
    batch = tensor(values[-1]).shape[0]
    for i in range(batch):
        size = None if lengths is None else int(lengths[i].item())
        parts = [tensor(value)[i] for value in values]
        first = len(values) - num_scan_inputs
        parts = [part if j < first or size is None else part[:size] for j, part in enumerate(parts)]
        results = scan(
            *parts, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions, scope=scope
        )
        items.append([tensor(one) for one in results])
    return tuple(torch.stack(parts) for parts in zip(*items, strict=True))


@operator("SequenceMap", since=17)
def sequence_map(items: Value, *more: Value, body: Any, scope: Any) -> Any:
    """Run the body for every item; further inputs are sequences of the same length, or tensors for all."""
    found: list[list[Any]] = [[] for _ in body.outputs]
    for i, item in enumerate(items):
        given = [one[i] if isinstance(one, list) else one for one in more]
        for results, value in zip(found, body.run([item, *given], scope), strict=True):
            results.append(map_tensors(tensor, value))
    return tuple(found)
