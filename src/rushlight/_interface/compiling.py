"""Tools of pages about compilation: the tracer, its settings and reports, records of calls, and which topics are
printed.
"""

from __future__ import annotations

from rushlight._base.log import LOG
from rushlight._capture.autograd import Walks
from rushlight._capture.trace import (
    COUNTERS,
    EVENTS,
    HOOKS,
    CompileSettings,
    compile_function,
    look_again,
    reset,
    show_segments,
)
from rushlight._capture.trace.documents.document import CallRecord, placeholder_name
from rushlight._capture.trace.guards.unchanged import Looks
from rushlight._capture.trace.reports.reasons import readable
from rushlight._engine.dispatch.explain import explain as explain_operators
from rushlight._graph.printer import to_source
from rushlight._transforms.passes import PASSES
from rushlight._transforms.patterns import Match, Pattern, PatternError, replaced

__all__ = [
    "LOG",  # the knob of `RUSHLIGHT_LOG`
    "CompileSettings",  # what is asked of a compiled function
    "compile_function",  # a function that is traced when it is called
    "Looks",  # whether dicts are as they were, without asking in Python
    "look_again",  # let compiled functions that run as they are ask their conditions
    "reset",  # forget what was traced
    "show_segments",  # let compiled functions run what was traced, or as they are
    "HOOKS",  # what the tracer is told of functions
    "EVENTS",  # who is told of breaks and recompilations
    "COUNTERS",
    "readable",  # a failed condition, in words
    "explain_operators",  # what the operators of a function ran
    "to_source",  # a graph of primitives as Python
    "PASSES",  # passes over graphs, by name
    # Parts of graphs that are replaced.
    "Pattern",
    "Match",
    "PatternError",
    "replaced",
    # Backward calls.
    "Walks",  # the engine's walks over histories as compiled functions
    # What a traced program called.
    "CallRecord",
    "placeholder_name",  # the name of an input from where it comes
]
