"""`rushlight.explain(compiled)(*args)`: what a compiled function is made of, as text or as a page.

For functions that are not compiled it tells what their operators ran.

>>> import rushlight as torch
>>> found = torch.explain(torch.compile(lambda x: x.relu() + 1))(torch.ones(4))
>>> found.summary().splitlines()[0]
'<lambda>: 1 program, 0 breaks, 0 recompilations'
>>> found.programs[0].calls, len(found.programs[0].kernels)
(2, 1)
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rushlight._interface.compiling import EVENTS, explain_operators, readable, to_source

__all__ = ["CompiledReport", "ProgramReport", "explain"]


@dataclasses.dataclass
class ProgramReport:
    """One program of a compiled function: conditions, graph of primitives, what runs, what it saves for backward."""

    title: str
    conditions: list[str]
    graph: str
    execution: str
    kernels: list[str]
    saved: list[str]
    calls: int

    def line(self) -> str:
        """The counts, in a line."""
        saved = f"{', '.join(self.saved)} saved for backward" if self.saved else "nothing saved for backward"
        return f"{_count(len(self.conditions), 'condition')}, {_count(self.calls, 'call')}, {_count(len(self.kernels), 'kernel')}; {saved}"


@dataclasses.dataclass
class CompiledReport:
    """What `explain` found of a compiled function; `result` is what the call gave.  `str` has everything, `html(path)`
    writes a page of it.
    """

    name: str
    result: Any
    programs: list[ProgramReport]
    breaks: list[str]
    recompilations: list[str]

    def summary(self) -> str:
        """A line for the function and two for each program."""
        counts = (
            _count(len(self.programs), "program"),
            _count(len(self.breaks), "break"),
            _count(len(self.recompilations), "recompilation"),
        )
        lines = [f"{self.name}: {', '.join(counts)}"]
        lines += [f"break: {text}" for text in self.breaks] + [f"again: {text}" for text in self.recompilations]
        for number, program in enumerate(self.programs, 1):
            lines += [f"program {number}, {program.title}", f"  {program.line()}"]
        return "\n".join(lines)

    def __str__(self) -> str:
        parts = [self.summary()]
        for number, program in enumerate(self.programs, 1):
            parts += [
                f"\n***** program {number}, {program.title} *****", "conditions", *(f"  {text}" for text in program.conditions), program.graph,
                program.execution,
            ]  # fmt: skip
        return "\n".join(parts)

    def html(self, path: str | Path) -> Path:
        """Write everything as one page without links to anything outside; gives its path."""
        written = Path(path)
        written.write_text(_page(self), encoding="utf-8")
        return written


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def explain(function: Callable[..., Any]) -> Callable[..., Any]:
    """`explain(f)(*args)` calls `f` and tells what ran: a `CompiledReport` of a compiled function or module, else a
    report on operators.
    """
    parts = _compiled_parts(function)
    if parts is None:
        return explain_operators(function)

    def run(*args: Any, **kwargs: Any) -> CompiledReport:
        breaks: list[str] = []
        again: list[str] = []

        def listen(kind: str, text: str, details: dict[str, Any]) -> None:
            if kind in ("break", "failure"):
                breaks.append(text)
            elif kind == "recompile":
                again.append(text)

        EVENTS.append(listen)
        try:
            result = function(*args, **kwargs)
        finally:
            EVENTS.remove(listen)
        compiled = [each for part in parts() for each in [getattr(part, "_compiled", None)] if each is not None]
        programs = [report for each in compiled for report in _programs(each)]
        name = getattr(function, "__qualname__", None) or f"{type(getattr(function, '_orig_mod', function)).__name__}"
        return CompiledReport(name, result, programs, breaks, again)

    return run


def _compiled_parts(function: Any) -> Callable[[], list[Any]] | None:
    """What gives the compiled functions behind a function or module; None where there are none."""
    if getattr(function, "_compiled", None) is not None:
        return lambda: [function]
    forward = getattr(function, "__dict__", {}).get("forward")
    found = getattr(forward, "_compiled_parts", None)
    if found is None and getattr(forward, "_compiled", None) is not None:
        return lambda: [forward]
    return found


def _programs(compiled: Any) -> list[ProgramReport]:
    found = [
        _program(segment, compiled.target.__code__.co_varnames, "from the beginning")
        for segment in compiled.entry.segments
    ]
    for key, position in compiled.positions.items():
        code, ip = key[-1][:2]
        found += [_program(segment, (), f"from instruction {ip} of {code.co_name}") for segment in position.segments]
    return found


_LOAD = re.compile(r"^\s*(v\d+) = (.*)$")
_CONDITION = re.compile(r"^\s*if not \((.*)\): return (?:MISS|False)$")


def _conditions(text: str) -> list[str]:
    """The conditions in a segment's code, variables replaced by what was loaded into them."""
    loaded: dict[str, str] = {}
    found: list[str] = []

    def whole(part: str) -> str:
        return re.sub(r"\bv\d+\b", lambda m: loaded.get(m[0], m[0]), part)

    for line in text.splitlines():
        condition, load = _CONDITION.match(line), _LOAD.match(line)
        if condition is not None:
            found += [whole(part) for part in condition[1].split(" and ")]
        elif load is not None:
            loaded[load[1]] = whole(load[2])
    return list(dict.fromkeys(found))


def _program(segment: Any, names: tuple[str, ...], begins: str) -> ProgramReport:
    """A report on one segment."""
    conditions = [readable(text, segment.space, names, ()) for text in _conditions(segment.text)]
    title = f"{begins} to {'the end' if segment.finished else 'a break'}"
    program = segment.program
    graph, execution, kernels, saved = "", "nothing to run", [], []
    if segment.graph_module is not None:
        graph, execution = str(segment.graph_module.graph), "a backend of the program's own runs this graph"
    elif program is not None:
        graph = to_source(program.graph)
        executable = program.compile()
        if executable is not None:
            execution = executable.explain()
            kernels = [step.name for step in executable.steps()]
        saved = [f"{spec.dtype.name}{list(spec.shape)}" for spec in program._residuals]
    calls = len(set(re.findall(r"call=(\d+)", graph))) or graph.count("call_")
    return ProgramReport(title, conditions, graph, execution, kernels, saved, calls)


# ***** the page *****

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222; background: #fff }
pre { background: #f6f6f4; padding: .8rem; overflow-x: auto; font: 12.5px/1.45 ui-monospace, monospace; border-radius: 4px }
summary { cursor: pointer; font-weight: 600; padding: .2rem 0 }
table { border-collapse: collapse } td, th { text-align: left; padding: .2rem 1rem .2rem 0; vertical-align: top }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1b1b1b } pre { background: #262626 } }
"""


def _folded(title: str, text: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details>"


def _page(report: CompiledReport) -> str:
    body = [f"<h1>{html.escape(report.name)}</h1>"]
    rows = "".join(
        f"<tr><td>program {number}</td><td>{html.escape(program.title)}</td><td>{html.escape(program.line())}</td></tr>"
        for number, program in enumerate(report.programs, 1)
    )
    body.append(f"<table>{rows}</table>")
    for title, texts in (("Breaks", report.breaks), ("Compiled again", report.recompilations)):
        body.append(f"<h2>{title}</h2>" + ("".join(f"<p>{html.escape(text)}</p>" for text in texts) or "<p>none</p>"))
    for number, program in enumerate(report.programs, 1):
        body.append(f"<h2>Program {number}, {html.escape(program.title)}</h2>")
        body.append(_folded(f"Graph of primitives ({_count(program.calls, 'call')})", program.graph, True))
        body.append(_folded(f"Conditions ({len(program.conditions)})", "\n".join(program.conditions)))
        body.append(_folded("What runs: fusion, memory, loops", program.execution))
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{html.escape(report.name)}, compiled</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
