"""Kernels of the block IR as readable text: one operation on a line, regions indented.  Equal texts are equal kernels."""

from __future__ import annotations

from typing import Any

from rushlight._types.dtype import DType

from .ir import Kernel, Op, Region, Value

__all__ = ["kernel_text"]


def kernel_text(kernel: Kernel) -> str:
    """The kernel, printed.  Lines of the source are left out, so they are no part of what tells two kernels apart."""
    return "\n".join(_Printer().kernel(kernel))


class _Printer:
    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.lines: list[str] = []
        self.count = 0

    def kernel(self, kernel: Kernel) -> list[str]:
        params = []
        for i, param in enumerate(kernel.params):
            self.names[param] = f"%{param.name or f'arg{i}'}"
            by = f" by {kernel.divisible[i]}" if i in kernel.divisible else ""
            params.append(f"{self.names[param]}: {param.type!r}{by}")
        stages = f" stages {kernel.stages}" if kernel.stages != 2 else ""
        self.lines.append(f"kernel {kernel.name}({', '.join(params)}) warps {kernel.warps}{stages}")
        self.region(kernel.body, "  ", last=False)
        return self.lines

    def name(self, value: Value) -> str:
        found = self.names.get(value)
        if found is None:
            found = self.names[value] = f"%{self.count}"
            self.count += 1
        return found

    def region(self, region: Region, indent: str, last: bool = True) -> None:
        for op in region.ops if last or region.yielded else region.ops[:-1]:
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        attributes = dict(op.attributes)
        kind = attributes.pop("prim") if op.kind == "pointwise" else op.kind
        for key, value in attributes.pop("params", {}).items():
            attributes[key] = value
        operands = ", ".join(map(self.name, op.operands))
        results = ", ".join(map(self.name, op.results))
        shown = ", ".join(f"{k}={_shown(v)}" for k, v in sorted(attributes.items()))
        text = f"{results} = " if results else ""
        text += kind + (f" {operands}" if operands else "") + (f" {{{shown}}}" if shown else "")
        text += f" : {', '.join(repr(v.type) for v in op.results)}" if results else ""
        self.lines.append(indent + text)
        for region in op.regions:
            params = ", ".join(f"{self.name(p)}: {p.type!r}" for p in region.params)
            self.lines.append(f"{indent}  ({params}):")
            self.region(region, indent + "    ")


def _shown(value: Any) -> str:
    return value.abbr if isinstance(value, DType) else repr(value)
