"""Records of the compiler: counters, and reports on graph breaks, recompilations and guards through Python's logging.

`torch._dynamo.utils.counters` are the counters here.  A report goes to the logger `rushlight.compiler.<topic>`; it is
printed to standard error where `RUSHLIGHT_LOG`, `TORCH_LOGS` or `torch._logging.set_logs` name the topic.

>>> import rushlight as torch
>>> from rushlight.compiler.journal import counters
>>> counters.clear()
>>> torch.compile(lambda x: x + 1)(torch.ones(1))
tensor([2.])
>>> counters["graph_break"]
Counter()
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from rushlight._interface.compiling import COUNTERS, EVENTS, LOG

__all__ = ["ARTIFACTS", "COMPONENTS", "apply_settings", "clear", "counters", "enabled", "parse", "report"]

counters = COUNTERS
_TOPICS = {
    "break": "breaks",
    "failure": "breaks",
    "reproduction": "breaks",
    "recompile": "recompiles",
    "sizes": "recompiles",
    "guards": "guards",
    "graph": "program",
}

# Names of PyTorch's logs, and the topic here that says the same; None where nothing here does.
ARTIFACTS: Mapping[str, str | None] = {
    "graph_breaks": "breaks", "recompiles": "recompiles", "recompiles_verbose": "recompiles", "guards": "guards", "graph": "program",
    "graph_code": "program", "graph_code_verbose": "program", "graph_sizes": "program", "aot_graphs": "joint", "aot_joint_graph": "joint",
    "bytecode": None, "ddp_graphs": None, "side_effects": "effects", "trace_source": "source", "trace_call": "source",
    "trace_bytecode": "bytecode", "output_code": "native", "kernel_code": "native", "schedule": "fusion", "perf_hints": "hints",
    "pre_grad_graphs": None, "post_grad_graphs": "joint", "ir_pre_fusion": None, "ir_post_fusion": "fusion", "onnx_diagnostics": None,
    "fusion": "fusion", "overlap": None, "cudagraphs": None, "sym_node": None, "compiled_autograd": None, "compiled_autograd_verbose": None,
    "cudagraph_static_inputs": None, "benchmarking": None, "autotuning": None, "incremental": None, "graph_region_expansion": None,
    "inductor_metrics": None, "hierarchical_compile": None, "compute_dependencies": None, "caching": "cache",
}  # fmt: skip
COMPONENTS = (
    "all", "dynamo", "aot", "autograd", "dynamic", "inductor", "distributed", "c10d", "ddp", "fsdp", "dtensor", "onnx", "export",
)  # fmt: skip
# Topics that a component prints from a level of logging on.
_OF_COMPONENT = {"all": ("breaks", "recompiles"), "dynamo": ("breaks", "recompiles")}
_asked: set[str] = set()  # by `set_logs`


def clear() -> None:
    """All counters at zero."""
    counters.clear()


def _handler(logger: logging.Logger) -> None:
    """Let a logger print to standard error, unless the program gave it handlers."""
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[rushlight %(topic)s] %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
    logger.setLevel(logging.DEBUG)


def enabled(topic: str) -> bool:
    """Whether reports on a topic are printed; ask before making a long text."""
    return topic in LOG.get() or logging.getLogger(f"rushlight.compiler.{topic}").isEnabledFor(10)


def report(topic: str, text: str) -> None:
    """Report on a topic, if it is enabled."""
    if not enabled(topic):
        return
    logger = logging.getLogger(f"rushlight.compiler.{topic}")
    if topic in LOG.get():
        _handler(logger)
    logger.debug("%s", text, extra={"topic": topic})


def _listen(kind: str, text: str, details: dict[str, Any]) -> None:
    """Report what the tracer tells."""
    report(_TOPICS.get(kind, kind), text)


EVENTS.append(_listen)


def apply_settings(wanted: Mapping[str, Any]) -> None:
    """Print what PyTorch's names ask for, and nothing else: artifacts are true or false, components have levels of
    logging.
    """
    asked = {topic for name, value in wanted.items() for topic in _topics(name, value)}
    LOG.set((LOG.get() - _asked) | asked)
    _asked.clear()
    _asked.update(asked)


def _topics(name: str, value: Any) -> tuple[str, ...]:
    """The topics that one of PyTorch's names stands for."""
    if name in ARTIFACTS:
        topic = ARTIFACTS[name]
        return (topic,) if value and topic else ()
    return _OF_COMPONENT.get(name, ()) if value is not None and value <= logging.INFO else ()


def parse(text: str) -> dict[str, Any]:
    """The settings that `TORCH_LOGS` says: `name` or `+name` or `-name`, with commas between them.  ValueError for an
    unknown name.
    """
    wanted: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name = word.lstrip("+-")
        if (
            name not in ARTIFACTS
            and name not in COMPONENTS
            and not logging.getLogger(name).handlers
            and "." not in name
        ):
            raise ValueError(
                f"Invalid log settings: {text}, must be a comma separated list of fully qualified module names, registered log names or "
                f"registered artifact names. Known: {', '.join((*COMPONENTS, *ARTIFACTS))}"
            )
        if name in ARTIFACTS:
            wanted[name] = not word.startswith("-")
        else:
            wanted[name] = logging.DEBUG if word[0] == "+" else logging.ERROR if word[0] == "-" else logging.INFO
    return wanted


if os.environ.get("TORCH_LOGS"):
    apply_settings(parse(os.environ["TORCH_LOGS"]))
