"""The page of `explain`: everything about a compiled function in one file that loads nothing."""

from __future__ import annotations

from html import escape
from typing import Any

__all__ = ["launch_line", "page_of"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color: #222; background: #fff }
pre { background: #f6f6f4; padding: .8rem; overflow-x: auto; font: 12.5px/1.45 ui-monospace, monospace; border-radius: 4px }
summary { cursor: pointer; font-weight: 600; padding: .2rem 0 } details details { margin-left: 1.2rem }
table { border-collapse: collapse } td, th { text-align: left; padding: .2rem 1rem .2rem 0; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } td.w { font: 12.5px/1.45 ui-monospace, monospace }
.bar { background: #4a7ebb; height: .7rem; display: inline-block } svg { width: 100%; height: auto; background: #f6f6f4; border-radius: 4px }
svg rect { fill: #4a7ebb; stroke: #fff; stroke-width: 1 } svg text { font: 11px system-ui, sans-serif; fill: #555 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b } pre, svg { background: #262626 } svg text { fill: #aaa } svg rect { stroke: #1b1b1b }
}
"""
_MOST_PRIMITIVES = 160  # letters of what a kernel computes
_WIDE, _HIGH = 900, 260  # of the drawing of memory


def page_of(report: Any) -> str:
    """A `CompiledReport` as HTML."""
    body = [f"<h1>{escape(report.name)}</h1>"]
    rows = "".join(
        f"<tr><td><a href='#p{number}'>program {number}</a></td><td>{escape(program.title)}</td><td>{escape(program.line())}</td></tr>"
        for number, program in enumerate(report.programs, 1)
    )
    body.append(f"<table>{rows}</table>")
    for title, texts in (("Breaks", report.breaks), ("Compiled again", report.recompilations)):
        body.append(f"<h2>{title}</h2>" + ("".join(f"<p>{escape(text)}</p>" for text in texts) or "<p>none</p>"))
    for number, program in enumerate(report.programs, 1):
        body.append(f"<h2 id='p{number}'>Program {number}, {escape(program.title)}</h2>")
        body += _program(program)
    for run in report.launches:
        body.append(f"<h2>Kernel {escape(launch_line(run))}</h2><pre>{escape(run.exe.explain(asm=True))}</pre>")
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(report.name)}, compiled</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def launch_line(run: Any) -> str:
    """A launch of a kernel of the user's, in a line."""
    return f"{run.name}, {1e6 * sum(run.seconds):.1f} us, at {run.place}"


def _program(program: Any) -> list[str]:
    """The parts of one program."""
    found = [_times(program)] if program.kernels else []
    calls = f"{program.calls} call{'' if program.calls == 1 else 's'}"
    found.append(_folded(f"Graph of primitives ({calls})", program.graph, True))
    if program.backward:
        found.append(_folded(f"Graph for gradients from outside, saved: {', '.join(program.saved)}", program.backward))
    found.append(_folded(f"Conditions ({len(program.conditions)})", "\n".join(program.conditions)))
    if program.clusters:
        found.append(_folded(f"What is fused ({len(program.clusters)} clusters)", "\n".join(program.clusters)))
        apart = "\n".join(program.apart) or "nothing that could be fused stays apart"
        found.append(_folded(f"What stays apart, and why ({len(program.apart)})", apart))
    if program.memory:
        found.append(_memory(program))
    found.append(_folded("What runs: fusion, memory, loops", program.execution))
    code = program.code()
    if code:
        kernels = "".join(
            f"<details><summary>{escape(name)}</summary>{_folded('LLVM', llvm)}{_folded('Assembly', assembly)}</details>"
            for name, llvm, assembly in code
        )
        found.append(f"<details><summary>Native code ({len(code)} kernels)</summary>{kernels}</details>")
    return found


def _folded(title: str, text: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _times(program: Any) -> str:
    """The time of each kernel against the machine's limit."""
    rows = program.times()
    if not rows:
        return ""
    whole, least = sum(row.seconds for row in rows) or 1e-12, sum(row.least for row in rows)
    columns = (("time", 1), ("of all", 1), ("", 0), ("times the limit", 1), ("count", 1), ("bytes", 1), ("operations", 1), ("kernel", 0), ("computes", 0))  # fmt: skip
    head = "<tr>" + "".join(f"<th{' class=n' if number else ''}>{name}</th>" for name, number in columns) + "</tr>"
    lines = [head]
    for row in rows:
        part, what = row.seconds / whole, row.primitives
        what = what if len(what) < _MOST_PRIMITIVES else what[:_MOST_PRIMITIVES] + " ..."
        lines.append(
            f"<tr><td class='n'>{1e6 * row.seconds:.1f} us</td><td class='n'>{100 * part:.1f} %</td>"
            f"<td><span class='bar' style='width:{max(80 * part, 1):.0f}px'></span></td><td class='n'>{row.ratio:.2f}</td>"
            f"<td class='n'>{row.count}</td><td class='n'>{row.moved}</td><td class='n'>{row.operations}</td>"
            f"<td class='w'>{escape(row.name)}</td><td class='w'>{escape(what)}</td></tr>"
        )
    told = (
        f"{1e6 * whole:.1f} us in kernels, {whole / least if least else 0:.2f} times what this machine could do at best"
    )
    return f"<details open><summary>Time of each kernel</summary><p>{told}</p><table>{''.join(lines)}</table></details>"


def _memory(program: Any) -> str:
    """Memory between kernels, as rectangles: waves of kernels to the right, offsets in the block downwards."""
    waves = 1 + max(last for _, _, _, last in program.memory)
    high = max([1, *[offset + nbytes for nbytes, offset, _, _ in program.memory]])
    parts = []
    for nbytes, offset, first, last in program.memory:
        x, width = _WIDE * first / waves, _WIDE * (last - first + 1) / waves
        y, height = _HIGH * offset / high, max(_HIGH * nbytes / high, 0.5)
        told = f"{nbytes} bytes at {offset}, waves {first} to {last}"
        parts.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}'><title>{told}</title></rect>"
        )
    held = sum(nbytes for nbytes, *_ in program.memory)
    title = f"Memory plan: {program.peak} bytes at the peak, {held} in all"
    drawing = f"<svg viewBox='0 0 {_WIDE} {_HIGH + 16}' role='img'>{''.join(parts)}<text x='4' y='{_HIGH + 12}'>{waves} waves of kernels</text></svg>"
    return f"<details open><summary>{title}</summary>{drawing}</details>"
