"""Counting floating point operations: of matrix products, convolutions and attention, two for each multiplication that
is added up.

Products are counted in the graphs of primitives that run, forward and backward, so that whatever is made of products is
counted; for convolutions and attention there are formulas, which are PyTorch's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import trace_marks, tree_map
from rushlight._interface.operators import trace_operator
from rushlight.profiler import flops
from rushlight.profiler.sources import Observer, observe, unobserve
from rushlight.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula", "sdpa_backward_flop_count", "sdpa_flop_count"]

Formula = Callable[..., int]


class _Packet:
    """Stands for an operator of `torch.ops.aten` that is no operator of its own here."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    __repr__ = __str__


_PACKETS: dict[str, Any] = {}


def packet(name: str) -> Any:
    """`torch.ops.aten.NAME`, by which counts are kept."""
    if name not in _PACKETS:
        try:
            _PACKETS[name] = getattr(rushlight.ops.aten, name)
        except (AttributeError, NotImplementedError):
            _PACKETS[name] = _Packet(name)
    return _PACKETS[name]


# ***** formulas *****

flop_registry: dict[Any, Formula] = {}


def _shapes(value: Any) -> Any:
    return tree_map(lambda v: v.shape if isinstance(v, Tensor) else v, value)


def _of_shapes(formula: Formula) -> Formula:
    """A formula of shapes as one of tensors."""

    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        return formula(*_shapes(args), out_shape=_shapes(out_val), **_shapes(kwargs))

    counted._get_raw = True  # type: ignore[attr-defined]
    return counted


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Formula], Formula]:
    """A decorator: `formula(*args, out_shape=..., **kwargs)` counts the operations of these operators
    (`torch.ops.NAMESPACE.NAME`).

    It is called with the call's arguments, tensors replaced by their shapes; with `get_raw` with the tensors themselves
    and `out_val`.  ValueError for what is no operator, RuntimeError for one that has a formula.
    """

    def register(formula: Formula) -> Formula:
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            if not isinstance(target, _Packet) and not hasattr(target, "_qualified_op_name"):
                raise ValueError(
                    f"register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. torch.ops.mylib.foo), got {target} "
                    f"which is of type {type(target)}"
                )
            if target in flop_registry or str(target).removeprefix("aten.") in _BUILT_IN:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = formula if get_raw else _of_shapes(formula)
        return formula

    return register


def sdpa_flop_count(query_shape: Sequence[int], key_shape: Sequence[int], value_shape: Sequence[int]) -> int:
    """Operations of attention for queries (batch, heads, length, size), and keys and values (batch, heads, other
    length, size).

    AssertionError where batches, heads or lengths differ.

        >>> from rushlight.utils.flop_counter import sdpa_flop_count
        >>> sdpa_flop_count((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)) == 2 * 2 * 3 * 5 * (4 + 6)
        True
    """
    _check_attention(query_shape, key_shape, value_shape)
    return flops.attention_flops(query_shape, key_shape, value_shape)


def sdpa_backward_flop_count(
    grad_out_shape: Sequence[int], query_shape: Sequence[int], key_shape: Sequence[int], value_shape: Sequence[int]
) -> int:
    """Operations of the gradient of attention, whose forward is computed anew; see `sdpa_flop_count`."""
    _check_attention(query_shape, key_shape, value_shape)
    if tuple(grad_out_shape) != (*query_shape[:3], value_shape[-1]):
        raise AssertionError(f"sdpa_backward: the result has another shape than its gradient, {tuple(grad_out_shape)}")
    return flops.attention_backward_flops(query_shape, key_shape, value_shape)


def _check_attention(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> None:
    if not (tuple(query[:2]) == tuple(key[:2]) == tuple(value[:2]) and query[3] == key[3] and key[2] == value[2]):
        raise AssertionError(
            f"sdpa: query, key and value do not fit each other: {tuple(query)}, {tuple(key)}, {tuple(value)}"
        )


def _forward_attention(shapes: Sequence[Any]) -> int:
    return flops.attention_flops(*_four_dims(shapes))


def _backward_attention(shapes: Sequence[Any]) -> int:
    return flops.attention_backward_flops(*_four_dims(shapes))


def _four_dims(shapes: Sequence[Any]) -> list[Any]:
    """(batch, heads, length, size) of query, key and value."""
    batch = [prod(shape[:-2]) for shape in shapes]
    return [(max(batch), 1, *shape[-2:]) for shape in shapes]


_ATTENTION = "_scaled_dot_product_flash_attention"
_BUILT_IN = {
    "mm", "addmm", "bmm", "baddbmm", "convolution", "_convolution", "convolution_backward", _ATTENTION, f"{_ATTENTION}_backward",
}  # fmt: skip
# Forward products that PyTorch has an operator of its own for.
_FUSED = {"addmm": "addmm", "baddbmm": "baddbmm"}
_CONVOLUTIONS = {
    "conv1d": 1,
    "conv2d": 2,
    "conv3d": 3,
    "conv_transpose1d": 1,
    "conv_transpose2d": 2,
    "conv_transpose3d": 3,
}


def _products(graph: Any) -> dict[str, int]:
    """Operations in the matrix products of a graph of primitives."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.prim.name == "dot" and node.outputs[0].dtype is node.inputs[0].dtype:  # PyTorch counts no `_int_mm`
            a, b = (tuple(value.shape) for value in node.inputs)
            name, count = (
                ("bmm", flops.batched_product_flops(a, b)) if len(a) == 3 else ("mm", flops.product_flops(a, b))
            )
            found[name] = found.get(name, 0) + count
    return found


def _batched(shape: Sequence[int], dims: int) -> tuple[int, ...]:
    return tuple(shape) if len(shape) == dims + 2 else (1, *shape)


def forward_counts(op: Any, template: Any, inputs: Sequence[Any], made: Any) -> dict[str, int]:
    """The operations of one call of an operator, by the names of PyTorch's operators."""
    tensors = [item for item in inputs if isinstance(item, Tensor)]
    shapes = [tuple(t.shape) for t in tensors]
    if op.name in _CONVOLUTIONS:
        dims = _CONVOLUTIONS[op.name]
        x, out = (_batched(shape, dims) for shape in (shapes[0], tuple(made.shape)))
        return {"convolution": flops.convolution_flops(x, shapes[1], out, "transpose" in op.name)}
    if op.name == "sdpa_core":
        return {_ATTENTION: _forward_attention(shapes[:3])}
    key = (op.name, template, tuple(t._spec for t in tensors))
    if key not in _COUNTED:
        if len(_COUNTED) > 4096:
            _COUNTED.clear()
        found = _products(trace_operator(op, template, [t._spec for t in tensors])[0]) if op.kind == "graph" else {}
        fused = "addmm" if op.name == "linear" and len(tensors) == 3 else _FUSED.get(op.name)
        _COUNTED[key] = {fused: sum(found.values())} if fused and found else found
    return _COUNTED[key]


_COUNTED: dict[Any, dict[str, int]] = {}


def backward_counts(node: Any) -> dict[str, int]:
    """The operations of one node of backward."""
    info = getattr(node, "info", None)
    if info is None:
        return {}
    name = info.origin[0].name if info.origin is not None else ""
    shapes = [tuple(value.shape) for value in info.forward.inputs]
    if name in _CONVOLUTIONS:
        x, grad = (_batched(shape, _CONVOLUTIONS[name]) for shape in (shapes[0], tuple(info.out_specs[0].shape)))
        mask = [i in info.wrt for i in range(2)]
        return {"convolution_backward": flops.convolution_backward_flops(grad, x, shapes[1], mask, "transpose" in name)}
    if name == "sdpa_core":
        return {f"{_ATTENTION}_backward": _backward_attention(shapes[:3])}
    return _products(info.graph)


# ***** the counter *****


class _Counts(Observer):
    """Tells a counter of what runs."""

    def __init__(self, counter: FlopCounterMode) -> None:
        self.counter = counter

    def enter(self, kind: str, name: str, given: Callable[[], list[tuple[str, Any]]], subject: Any) -> Any:
        """A call begins."""
        return kind, name, given, subject

    def leave(self, mark: Any, made: Any) -> None:
        """A call ends; one that raised is not counted."""
        kind, _, given, subject = mark
        if made is None:
            return
        if kind == "node":
            self.counter._add({packet(key): count for key, count in backward_counts(subject).items()})
        elif kind == "custom":
            self.counter._count_flops(subject, made, [value for _, value in given()], {})
        elif kind == "operator" and subject is not None:
            op, template, inputs = subject
            target = packet(op.name)
            if target in self.counter.custom:
                self.counter._count_flops(target, made, [value for _, value in given()], {})
            else:
                found = forward_counts(op, template, inputs, made)
                self.counter._add({packet(key): count for key, count in found.items()})


_SUFFIXES = ("", "K", "M", "B", "T")


def _with_suffix(count: int, suffix: str) -> str:
    value = f"{count / 1000 ** _SUFFIXES.index(suffix):.3f}"
    return value + suffix


def _suffix_of(count: int) -> str:
    place = max(0, min(len(_SUFFIXES) - 1, (len(str(count)) - 2) // 3))
    return _SUFFIXES[place]


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "0%"


class FlopCounterMode:
    """Counts the operations of what runs inside `with`, in all and by module, and prints a table at the end unless
    `display=False`.

    `depth` is how deep in the tree of modules the table goes; `custom_mapping` has formulas for further operators,
    which are called as those of `register_flop_formula`.

    The counts are PyTorch's, but that it does not see into some of its kernels for CPUs: attention, LSTM, `bilinear`
    and `addbmm` are counted here.  A second derivative counts what is computed, which may be more than PyTorch
    computes.

        >>> from rushlight.utils.flop_counter import FlopCounterMode
        >>> with FlopCounterMode(display=False) as counter:
        ...     y = torch.nn.Linear(4, 5)(torch.ones(3, 4))
        >>> counter.get_total_flops()
        120
        >>> {str(key): count for key, count in counter.get_flop_counts()["Linear"].items()}
        {'aten.addmm': 120}
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None
    ) -> None:
        if mods is not None:
            import warnings

            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.flop_counts: defaultdict[str, defaultdict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        self.custom = {
            key: f if getattr(f, "_get_raw", False) else _of_shapes(f) for key, f in (custom_mapping or {}).items()
        }
        self.mod_tracker = ModuleTracker()
        self._observer: _Counts | None = None

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self._observer = _Counts(self)
        observe(self._observer)
        return self

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __exit__(self, *args: Any) -> None:
        if self._observer is None:
            raise AssertionError("FlopCounterMode was left before it was entered")
        unobserve(self._observer)
        self._observer = None
        self.mod_tracker.__exit__(*args)
        if self.display:
            print(self.get_table(self.depth))

    def _add(self, counts: dict[Any, int]) -> None:
        for name in self.mod_tracker.parents if counts else ():
            for key, count in counts.items():
                self.flop_counts[name][key] += count

    def _count_flops(self, func_packet: Any, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Count a call of an operator for which somebody gave a formula."""
        formula = self.custom.get(func_packet) or flop_registry.get(func_packet)
        if formula is not None:
            self._add({func_packet: formula(*args, **kwargs, out_val=out)})
        return out

    def get_total_flops(self) -> int:
        """All operations."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Operations by module ("Global" is all), and by operator."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Modules down to `depth`, what they take, and their part of all."""
        depth = depth if depth is not None else self.depth if self.depth is not None else 1 << 30
        total = self.get_total_flops()
        suffix = _suffix_of(total)
        rows: list[tuple[str, str, str]] = []

        def rows_of(name: str, indent: str) -> list[tuple[str, str, str]]:
            counts = self.flop_counts[name]
            lines = [(name, sum(counts.values())), *[(f" - {key}", count) for key, count in counts.items()]]
            return [(indent + word, _with_suffix(count, suffix), _percent(count, total)) for word, count in lines]

        for name in sorted(self.flop_counts):
            level = name.count(".")
            if name != "Global" and level < depth:
                rows += rows_of(name, " " * level)
        shown = [name for name in self.flop_counts if name != "Global" and name.count(".") < depth]
        if "Global" in self.flop_counts and not any(sum(self.flop_counts[name].values()) >= total for name in shown):
            rows = rows_of("Global", "") + [(" " + word, count, part) for word, count, part in rows]
        return _aligned(("Module", "FLOP", "% Total"), rows or [("Global", "0", "0%")])


def _aligned(head: tuple[str, str, str], rows: Sequence[tuple[str, str, str]]) -> str:
    """The first column to the left, numbers to the right, dashes under the head."""
    widths = [max(len(head[i]) + 2, *[len(row[i]) for row in rows]) for i in range(3)]
    lines = []
    for row in (head, tuple("-" * width for width in widths), *rows):
        lines.append(f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}".rstrip())
    return "\n".join(lines)
