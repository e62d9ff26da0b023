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
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rushlight._interface.compiling import EVENTS, explain_operators, readable, to_source
from rushlight.compiler.inspection_page import launch_line, page_of

__all__ = ["CompiledReport", "KernelTime", "ProgramReport", "explain"]


@dataclasses.dataclass
class KernelTime:
    """A kernel or routine of a program, alike ones together: `seconds` of a call that they take, the `least` that this
    machine could take for so many bytes or operations, and how many they are.
    """

    name: str
    primitives: str
    seconds: float
    least: float
    moved: int
    operations: int
    count: int = 1

    @property
    def ratio(self) -> float:
        """Times the machine's limit; 0 where it has none."""
        return self.seconds / self.least if self.least else 0.0


@dataclasses.dataclass
class ProgramReport:
    """One program of a compiled function: conditions, graph of primitives, what runs, what it saves for backward.

    `backward` is the graph for gradients that come from outside of the program.  `clusters` says which calls are fused,
    `apart` why others are not; `memory` lists (bytes, offset, first wave, last wave) of what lives between kernels, in
    a block of `peak` bytes.  `times` and `code` are made when they are asked for.
    """

    title: str
    conditions: list[str]
    graph: str
    execution: str
    kernels: list[str]
    saved: list[str]
    calls: int
    backward: str = ""
    clusters: list[str] = dataclasses.field(default_factory=list)
    apart: list[str] = dataclasses.field(default_factory=list)
    memory: list[tuple[int, int, int, int]] = dataclasses.field(default_factory=list)
    peak: int = 0
    _program: Any = dataclasses.field(default=None, repr=False, compare=False)
    _times: list[KernelTime] | None = dataclasses.field(default=None, repr=False, compare=False)

    def line(self) -> str:
        """The counts, in a line."""
        saved = f"{', '.join(self.saved)} saved for backward" if self.saved else "nothing saved for backward"
        return f"{_count(len(self.conditions), 'condition')}, {_count(self.calls, 'call')}, {_count(len(self.kernels), 'kernel')}; {saved}"

    def times(self, seconds: float = 0.2) -> list[KernelTime]:
        """The time of the kernels, longest first.  The first call runs the program by itself for about so many seconds,
        on memory of its own; the machine's limits are measured once a process.
        """
        if self._times is None:
            alike: dict[Any, KernelTime] = {}
            for step in [] if self._program is None else self._program.step_times(seconds):
                key = step.name, step.primitives, step.moved, step.operations
                row = alike.setdefault(key, KernelTime(step.name, step.primitives, 0.0, 0.0, *key[2:], 0))
                row.seconds, row.least, row.count = row.seconds + step.seconds, row.least + step.least, row.count + 1
            self._times = sorted(alike.values(), key=lambda row: -row.seconds)
        return self._times

    def times_table(self, seconds: float = 0.2) -> str:
        """`times` as text: time, part of the whole, times the limit, bytes and operations of each, what it computes."""
        rows = self.times(seconds)
        whole, least = sum(row.seconds for row in rows) or 1e-12, sum(row.least for row in rows)
        lines = [f"{1e6 * whole:.1f} us in kernels, {whole / least if least else 0:.2f} times the machine's limit"]
        for row in rows:
            lines.append(
                f"{1e6 * row.seconds:9.1f} us {100 * row.seconds / whole:5.1f} % {row.ratio:7.2f} x limit {row.count:4} of "
                f"{row.moved} bytes, {row.operations} operations: {row.name}: {row.primitives}"
            )
        return "\n".join(lines)

    def code(self) -> list[tuple[str, str, str]]:
        """(name, LLVM text, assembly) of each kernel, each once; they are compiled anew for it."""
        executable = None if self._program is None else self._program.compile()
        if executable is None:
            return []
        assembly = dict(executable.assembly())
        return [(name, text, assembly.get(name, "")) for name, text in executable.code()]


@dataclasses.dataclass
class CompiledReport:
    """Result of `explain` for a compiled function; `result` is what the call gave, `launches` the runs of kernels that the
    user wrote, between the programs.  `str` has everything, `html(path)` writes a page of it.
    """

    name: str
    result: Any
    programs: list[ProgramReport]
    breaks: list[str]
    recompilations: list[str]
    launches: list[Any] = dataclasses.field(default_factory=list)

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
        lines += [f"kernel {launch_line(run)}" for run in self.launches]
        return "\n".join(lines)

    def __str__(self) -> str:
        parts = [self.summary()]
        for number, program in enumerate(self.programs, 1):
            parts += [
                f"\n***** program {number}, {program.title} *****", "conditions", *(f"  {text}" for text in program.conditions), program.graph,
                program.execution,
            ]  # fmt: skip
        parts += [f"\n***** {launch_line(run)} *****\n{run.exe.explain()}" for run in self.launches]
        return "\n".join(parts)

    def html(self, path: str | Path) -> Path:
        """Write everything as one page without links to anything outside, with times and native code of the kernels;
        gives its path.
        """
        written = Path(path)
        written.write_text(page_of(self), encoding="utf-8")
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
            launched = explain_operators(function, operators=False)(*args, **kwargs)
        finally:
            EVENTS.remove(listen)
        compiled = [each for part in parts() for each in [getattr(part, "_compiled", None)] if each is not None]
        programs = [report for each in compiled for report in _programs(each)]
        name = getattr(function, "__qualname__", None) or f"{type(getattr(function, '_orig_mod', function)).__name__}"
        return CompiledReport(name, launched.result, programs, breaks, again, launched.runs)

    return run


def _compiled_parts(function: Any) -> Callable[[], list[Any]] | None:
    """Getter of the compiled functions behind a function or module; None where there are none."""
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
_CONDITION = re.compile(r"^\s*if not \((.*)\): return (?:None|False)$")


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
        saved = [
            f"{spec.dtype.name}{list(spec.shape)}"
            for kind, spec in program.saved_values
            if kind == "residual" and spec is not None
        ]
    calls = len(set(re.findall(r"call=(\d+)", graph))) or graph.count("call_")
    found = ProgramReport(title, conditions, graph, execution, kernels, saved, calls)
    if segment.graph_module is None and program is not None:
        _more(found, program)
    return found


def _more(report: ProgramReport, program: Any) -> None:
    """Add to a report the parts that only our own programs have."""
    report._program = program
    backward, executable = program.backward_graph, program.compile()
    if backward is not None:
        report.backward = to_source(backward)
    if hasattr(executable, "clusters"):
        report.clusters, report.apart = executable.clusters(), list(dict.fromkeys(executable.notes))
        report.memory, report.peak = executable.memory_plan(), executable.peak
