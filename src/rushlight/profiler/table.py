"""The table of a profile, in PyTorch's columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["format_memory", "format_share", "format_time", "table"]

_WIDTH, _GAP = 12, "  "
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def format_time(time_us: float, unit: str | None = None) -> str:
    """Microseconds in the unit that fits, or in the one asked for."""
    if unit not in _UNITS:
        unit = "s" if time_us >= 1e6 else "ms" if time_us >= 1e3 else "us"
    return f"{time_us / _UNITS[unit]:.3f}{unit}"


def format_share(time_us: float, total_us: float) -> str:
    """A part of a total in percent; "NaN" of nothing."""
    if total_us == 0:
        if time_us != 0:
            raise AssertionError(f"Expected time_us == 0 but got {time_us}")
        return "NaN"
    return f"{time_us * 100.0 / total_us:.2f}%"


def format_memory(nbytes: int) -> str:
    """Bytes in the unit that fits."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**power:
            return f"{nbytes / 1024**power:.2f} {unit}"
    return f"{nbytes} B"


class _Column:
    """A column: its head, its width, on which side texts stand."""

    def __init__(self, head: str, width: int = _WIDTH, side: str = ">") -> None:
        self.head, self.width, self.side = head, width, side

    def cell(self, value: Any) -> str:
        return format(str(value), f" {self.side}{self.width}")


def _cut(name: str, width: int | None) -> str:
    return name if width is None or len(name) < width - 3 else name[: width - 3] + "..."


def _cut_front(path: str, width: int) -> str:
    """The end of a text that is too long."""
    if len(path) <= width:
        return path
    path = path[-width:]
    return "..." + path[3:] if len(path) > 3 else path


def _fit(lengths: Sequence[int], limit: int | None) -> int:
    width = max(lengths) + 4
    return width if limit is None else min(width, limit)


def _flops_unit(counts: Sequence[int]) -> tuple[float, str]:
    """A factor and a name such that the smallest count is at least one."""
    power = min(max(int(math.log10(min(counts)) / 3), 0), 5)
    return 1000.0**-power, ("", "K", "M", "G", "T", "P")[power] + "FLOPs"


class _Layout:
    """Which columns there are, and what a row has in them."""

    def __init__(
        self, events: Sequence[Any], widths: Sequence[int | None], unit: str | None, memory: bool, flops: bool
    ) -> None:
        self.unit, self.memory, (self.name_limit, shapes_limit, source_limit) = unit, memory, widths
        self.total = sum(e.self_cpu_time_total for e in events)
        self.device = (events[0].use_device or "").upper()
        timed = [e for e in events if e.self_device_time_total > 0] if self.device else []
        self.device_total = sum(e.self_device_time_total for e in timed if e.device_type.name != "CPU")
        self.device_times = bool(timed)
        self.device_memory = bool(self.device) and memory and any(e.self_device_memory_usage > 0 for e in events)
        self.overloads = any(e.overload_name for e in events)
        self.nodes = any(e.node_id != -1 for e in events)
        self.shapes = any(e.input_shapes for e in events)
        stacks = [e.stack for e in events if e.stack]
        counts = [e.flops for e in events if e.flops is not None and e.flops > 0] if flops else []
        name_width = _fit([len(e.key) for e in events], self.name_limit)
        self.columns = [_Column("Name", name_width)]
        if self.overloads:
            self.columns.append(_Column("Overload Name", name_width))
        heads = ["Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        if self.device_times:
            name = self.device
            heads += [f"Self {name}", f"Self {name} %", f"{name} total", f"{name} time avg"]
        heads += ["CPU Mem", "Self CPU Mem"] if memory else []
        heads += [f"{self.device} Mem", f"Self {self.device} Mem"] if self.device_memory else []
        heads += ["# of Calls", *(["Node ID"] if self.nodes else [])]
        self.columns += [_Column(head) for head in heads]
        if self.shapes:
            self.shapes_width = _fit([len(str(e.input_shapes)) for e in events], shapes_limit)
            self.columns.append(_Column("Input Shapes", self.shapes_width))
        self.source_width = 0
        if stacks:
            self.source_width = _fit([max(map(len, stack)) for stack in stacks], source_limit)
            self.columns.append(_Column("Source Location", self.source_width, "<"))
        self.scale, unit_name = _flops_unit(counts) if counts else (0.0, "")
        if counts:
            self.columns.append(_Column(f"Total {unit_name}"))

    def rule(self) -> str:
        """The line of dashes."""
        return "".join("-" * c.width + _GAP for c in self.columns)

    def line(self, values: Sequence[Any]) -> str:
        """One line of the table."""
        return "".join(c.cell(v) + _GAP for c, v in zip(self.columns, values, strict=True))

    def _times(self, event: Any) -> list[str]:
        event.self_cpu_percent = format_share(event.self_cpu_time_total, self.total)
        event.total_cpu_percent = format_share(event.cpu_time_total, self.total) if not event.is_async else 0
        own, total = format_time(event.self_cpu_time_total, self.unit), format_time(event.cpu_time_total, self.unit)
        return [event.self_cpu_percent, own, event.total_cpu_percent, total, format_time(event.cpu_time, self.unit)]

    def _device_times(self, event: Any) -> list[str]:
        own, total, mean = event.self_device_time_total, event.device_time_total, event.device_time
        event.total_device_percent = format_share(own, self.device_total)
        own, total, mean = (format_time(t, self.unit) for t in (own, total, mean))
        return [own, event.total_device_percent, total, mean]

    def rows(self, event: Any) -> list[str]:
        """The lines of an event: one, and more where it has a stack."""
        values: list[Any] = [_cut(event.key, self.name_limit)]
        if self.overloads:
            values.append(_cut(event.overload_name or "", self.name_limit))
        values += self._times(event)
        values += self._device_times(event) if self.device_times else []
        if self.memory:
            values += [format_memory(event.cpu_memory_usage), format_memory(event.self_cpu_memory_usage)]
        if self.device_memory:
            values += [format_memory(event.device_memory_usage), format_memory(event.self_device_memory_usage)]
        values += [event.count, *([event.node_id] if self.nodes else [])]
        if self.shapes:
            values.append(str(event.input_shapes)[: self.shapes_width])
        stack = [_cut_front(entry, self.source_width) for entry in event.stack or []] if self.source_width else []
        if self.source_width:
            values.append(stack[0] if stack else "")
        if self.scale:
            values.append(f"{event.flops * self.scale:8.3f}" if event.flops and event.flops > 0 else "--")
        lines = [self.line(values)]
        if self.source_width:
            at = len(values) - 1 - bool(self.scale)
            blank = [""] * len(values)
            lines += [self.line([*blank[:at], entry, *blank[at + 1 :]]) for entry in [*stack[1:], ""]]
        return lines


def table(
    events: Sequence[Any],
    row_limit: int,
    widths: Sequence[int | None],
    header: str | None,
    top_level_only: bool,
    unit: str | None,
    memory: bool,
    flops: bool,
) -> str:
    """Events, in their order, as text; `widths` are the largest of the columns of names, shapes and places."""
    if not events:
        return ""
    layout = _Layout(events, widths, unit, memory, flops)
    rule = layout.rule()
    lines = []
    if header is not None:
        lines += ["=" * (len(rule) - len(_GAP)), header]
    if top_level_only:
        lines += ["=" * (len(rule) - len(_GAP)), "This report only display top-level ops statistics"]
    lines += [rule, layout.line([c.head for c in layout.columns]), rule]
    shown = [e for e in events if not (top_level_only and e.cpu_parent is not None)]
    for event in shown if row_limit < 0 else shown[:row_limit]:
        lines += layout.rows(event)
    lines += [rule, f"Self CPU time total: {format_time(layout.total, unit)}"]
    if layout.device_times:
        lines.append(f"Self {layout.device} time total: {format_time(layout.device_total, unit)}")
    return "\n".join(lines) + "\n"
