"""`CommDebugMode`: counts of collectives, for each module, in forward and in backward."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import rushlight
from rushlight._interface.base import trace_marks
from rushlight._interface.dispatch import Observer, observe, unobserve
from rushlight.distributed import _ops
from rushlight.distributed.tensor._api import DTensor
from rushlight.distributed.tensor.debug._modules import ROOT, Modules
from rushlight.profiler.collectives import functional_name, operations_since

__all__ = ["CommDebugMode"]

_COUNTED = frozenset(_ops.C10D) - {"barrier", "send", "recv_", "recv_any_source_"}
_TRIVIAL = (
    "aten.detach",
    "aten.t",
    "aten.view",
    "aten._to_copy",
    "aten.as_strided",
    "aten.transpose",
    "aten.transpose.int",
)
_YELLOW, _RED, _PLAIN = "\033[1;33m", "\033[1;31m", "\033[0m"
_COLOURS = re.compile(r"\x1B\[[0-?]*[ -/]*[@-~]")


class CommDebugMode(Observer):
    """Inside `with`, counts the collectives of this thread: in all, and for each module in forward and in backward.

    Collectives of DTensors, of `_functional_collectives` and of compiled programs are counted as `torch.ops.c10d_functional.*`, those of
    `torch.distributed` as `torch.ops.c10d.*`.

    Example: `with CommDebugMode() as comm: model(x).sum().backward()`, then `comm.get_comm_counts()`
    """

    takes_programs = True
    takes_spread = True

    def __init__(self) -> None:
        self.comm_counts: dict[Any, int] = defaultdict(int)
        self.comm_module_counts: dict[str, dict[str, dict[Any, int]]] = {}
        self.comm_module_operation_counts: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.modules = Modules()
        self._inside = 0  # functional collectives that run now

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __enter__(self) -> CommDebugMode:
        self.comm_counts.clear()
        self.comm_module_counts.clear()
        self.comm_module_operation_counts.clear()
        self._counts_of(ROOT)
        self._inside = 0
        self.modules.__enter__()
        observe(self)
        return self

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __exit__(self, *args: Any) -> None:
        unobserve(self)
        self.modules.__exit__(*args)

    # ***** what is told *****

    def enter(self, kind: str, name: str, given: Callable[[], list[tuple[str, Any]]], subject: Any) -> Any:
        """A call begins."""
        if kind == "collective":
            space, _, word = name.partition("::")
            if space == "_c10d_functional":
                self._inside += 1
                self._count(getattr(rushlight.ops.c10d_functional, word))
                self._operation(name.replace("::", "."), [])
                return True
            if not self._inside and word in _COUNTED:
                self._count(getattr(rushlight.ops.c10d, word))
        elif kind == "program":
            return perf_counter_ns()
        elif kind in ("operator", "custom"):
            self._operation(name.replace("::", ".") if kind == "custom" else f"aten.{name}", [])
        return None

    def leave(self, mark: Any, made: Any) -> None:
        """A call ends."""
        if mark is True:
            self._inside -= 1
        elif mark is not None:  # of a compiled program
            for operation in operations_since(mark, set()):
                packet = getattr(rushlight.ops.c10d_functional, functional_name(operation), None)
                if packet is not None and not self._inside:
                    self._count(packet)

    def spread(self, name: str, tensors: Any) -> None:
        """An operator of DTensors runs."""
        self._operation(f"aten.{name}", [x for x in tensors if isinstance(x, DTensor)])

    def _counts_of(self, name: str) -> dict[str, dict[Any, int]]:
        return self.comm_module_counts.setdefault(
            name, {"forward": defaultdict(int), "backward": defaultdict(int)}
        )  # fmt: skip

    def _count(self, packet: Any) -> None:
        self.comm_counts[packet] += 1
        way = "backward" if self.modules.is_bw else "forward"
        for name in self.modules.around(self.modules.current):
            self._counts_of(name)[way][packet] += 1

    def _operation(self, name: str, tensors: list[Any]) -> None:
        modules = self.modules
        row = {
            "name": name,
            "input_shape": [x.shape for x in tensors],
            "input_sharding": [x.placements for x in tensors],
            "device_mesh": str(tensors[0].device_mesh) if tensors else "",
            "is_bw": modules.is_bw,
            "is_activation_checkpointing": modules.recomputes,
        }
        kept = self.comm_module_operation_counts.setdefault(modules.current, {"operations_list": []})
        kept["operations_list"].append(row)

    # ***** results *****

    def get_total_counts(self) -> int:
        """How many collectives there were."""
        return sum(self.comm_counts.values())

    def get_comm_counts(self) -> dict[Any, int]:
        """Operator -> how often it ran; 0 for others."""
        return self.comm_counts

    def get_parameter_info(self) -> dict[str, dict[str, Any]]:
        """Module -> its own parameters by name."""
        return self.modules.parameters

    def get_sharding_info(self) -> dict[str, Any]:
        """Parameter that is a DTensor -> its placements."""
        return self.modules.placements

    def _operations_of(self, name: str, noise_level: int) -> list[list[dict[str, Any]]]:
        """The operations of a module in forward, in backward, and in forward that ran again: 1 shows those of DTensors,
        2 all but trivial ones, 3 all.
        """
        rows = self.comm_module_operation_counts.get(name, {"operations_list": []})["operations_list"]
        if noise_level < 3:
            rows = [
                r for r in rows if r["name"].rpartition(".default")[0] not in _TRIVIAL and r["name"] not in _TRIVIAL
            ]
        if noise_level < 2:
            rows = [r for r in rows if r["input_sharding"]]
        if noise_level < 1:
            rows = []
        again = [r for r in rows if r["is_activation_checkpointing"]]
        rest = [r for r in rows if not r["is_activation_checkpointing"]]
        return [[r for r in rest if not r["is_bw"]], [r for r in rest if r["is_bw"]], again]

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """A table of all modules with their collectives and operations, coloured for a terminal.

        `noise_level` 0 shows collectives; 1 also kinds of modules, parameters, and operations of DTensors; 2 all
        operations but trivial ones; 3 all.
        """
        return "".join(self._rows_of(name, noise_level) for name in self.modules.known)

    def _rows_of(self, name: str, noise_level: int) -> str:
        known = self.modules.known[name]
        indent = "    " * known["depth"]
        rows = [f"{indent}{name}"]
        if noise_level and "module_type" in known:
            rows.append(f"{indent}*module type: {known['module_type']}")
            if "parameters" in known:
                rows.append(f"{indent}*Parameter List")
                rows += [f"{indent} *{word}: {placement}" for word, placement in known["parameters"].items()]
        counts = self.comm_module_counts.get(name, {"forward": {}, "backward": {}})
        titles = ("FORWARD PASS", "BACKWARD PASS", "ACTIVATION CHECKPOINTING")
        collectives: tuple[dict[Any, int], ...] = (counts["forward"], counts["backward"], {})
        for title, counted, operations in zip(titles, collectives, self._operations_of(name, noise_level), strict=True):
            if counted or operations:
                rows.append(f"{indent}  {title}")
            rows += [f"{_YELLOW}{indent}    *{packet}: {count}{_PLAIN}" for packet, count in counted.items()]
            for row in operations:
                rows.append(f"{_YELLOW}{indent}    **{row['name']}{_PLAIN}")
                if row["input_shape"]:
                    rows += [
                        f"{_RED}{indent}      {word}: {row[key]}{_PLAIN}"
                        for word, key in (
                            ("shape", "input_shape"),
                            ("sharding", "input_sharding"),
                            ("device mesh", "device_mesh"),
                        )
                    ]
        return "\n".join(rows) + "\n"

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt", noise_level: int = 3) -> None:
        """Write the table to a file, without colours."""
        with open(file_name, "w") as file:
            file.write(_COLOURS.sub("", self.generate_comm_debug_tracing_table(noise_level)))

    def generate_json_dump(self, file_name: str = "comm_mode_log.json", noise_level: int = 3) -> None:
        """Write what the table shows as JSON: a tree of modules."""
        with open(file_name, "w") as file:
            json.dump(self._tree(ROOT, noise_level), file, indent=4)

    def _tree(self, name: str, noise_level: int) -> dict[str, Any]:
        known = self.modules.known[name] if noise_level else {}
        counts = self.comm_module_counts.get(name, {"forward": {}, "backward": {}})
        forward, backward, again = (
            [
                {**r, "input_shape": [str(s) for s in r["input_shape"]], "input_sharding": [str(s) for s in r["input_sharding"]]}
                for r in rows
            ]
            for rows in self._operations_of(name, noise_level)
        )  # fmt: skip
        return {
            "fqn": name,
            "module_type": known.get("module_type", ""),
            "parameters": [list(item) for item in known.get("parameters", {}).items()],
            "children": [self._tree(child, noise_level) for child in self.modules.children.get(name, [])],
            "collectives_forward": [[str(packet), count] for packet, count in counts["forward"].items()],
            "collectives_backward": [[str(packet), count] for packet, count in counts["backward"].items()],
            "operations_forward": forward,
            "operations_backward": backward,
            "operations_checkpointing": again,
        }
