"""From a module to the stages of a pipeline: `pipeline`, `pipe_split`, `SplitPoint`, `Pipe`.

The module is traced by `torch.fx`, but only as far as splits are: a part without split points is one call, and may hold
any Python.  (PyTorch exports the whole module, so that all of it must be traceable.)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from rushlight import fx
from rushlight.distributed.pipelining._utils import PipeInfo
from rushlight.distributed.pipelining.splitting import split_graph
from rushlight.distributed.pipelining.stage import build_stage
from rushlight.distributed.pipelining.tracing import Splits, annotated, note_split, trace
from rushlight.nn import Module

__all__ = ["Pipe", "SplitPoint", "annotate_split_points", "pipe_split", "pipeline"]


class SplitPoint(Enum):
    """Where a stage begins: before a module, or behind it."""

    BEGINNING = 1
    END = 2


def pipe_split() -> None:
    """In a module's `forward`: what follows belongs to the next stage.  Does nothing when the module runs.

    >>> import rushlight as torch
    >>> from rushlight.distributed.pipelining import pipe_split, pipeline
    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
    ...     def forward(self, x):
    ...         x = self.a(x).relu()
    ...         pipe_split()
    ...         return self.b(x)
    >>> pipe = pipeline(Net(), (torch.ones(2, 4),))
    >>> print(pipe.split_gm.code.strip())
    def forward(self, x):
        submod_pp_0 = self.submod_pp_0(x);  x = None
        submod_pp_1 = self.submod_pp_1(submod_pp_0);  submod_pp_0 = None
        return (submod_pp_1,)
    """
    note_split(pipe_split)


def annotate_split_points(mod: Module, spec: dict[str, SplitPoint]) -> None:
    """Put split points before or behind parts of a module, by their names; for a later `pipeline` of it.

    AttributeError for a part that is not there.
    """
    found = annotated(mod)
    for name, point in spec.items():
        mod.get_submodule(name)
        found[name] = SplitPoint(point).name


class Pipe(Module):
    """A module in stages; made by `pipeline`.

    - `split_gm`: a module that calls the stages one after the other
    - `num_stages`: how many there are
    - `replicated_params`: parameters that several stages have, each as a dict: name of a stage -> name there.  Each stage
      gets its own gradient: add them up (`all_reduce`) before an optimizer steps
    """

    def __init__(self, split_gm: fx.GraphModule, num_stages: int, has_loss_and_backward: bool, loss_spec: Any) -> None:
        super().__init__()
        self.split_gm, self.num_stages = split_gm, num_stages
        self.has_loss_and_backward, self.loss_spec = has_loss_and_backward, loss_spec
        self.replicated_params = self._replicated()

    def _replicated(self) -> list[dict[str, str]]:
        places: dict[Any, dict[str, str]] = {}
        for k in range(self.num_stages):
            for name, parameter in self.get_stage_module(k).named_parameters():
                places.setdefault(parameter, {})[f"submod_pp_{k}"] = name
        return [found for found in places.values() if len(found) > 1]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the last stage, as a tuple: runs all stages here."""
        return self.split_gm(*args, **kwargs)

    def get_stage_module(self, stage_idx: int) -> Module:
        """The module of a stage; its parameters have the names that they have in the whole.

        ValueError for a stage that is not there.
        """
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return getattr(self.split_gm, f"submod_pp_{stage_idx}")

    def __str__(self) -> str:
        return str(self.split_gm)

    def __repr__(self) -> str:
        return repr(self.split_gm)

    def print_readable(self) -> None:
        """Print the stages' code."""
        self.split_gm.print_readable()

    @staticmethod
    def from_tracing(
        mod: Module,
        example_args: tuple[Any, ...],
        example_kwargs: dict[str, Any] | None = None,
        split_policy: Callable[[fx.GraphModule], fx.GraphModule] | None = None,
    ) -> Pipe:
        """A `Pipe` from a module and arguments for one micro-batch; see `pipeline`."""
        splits = Splits.of(mod, example_args, example_kwargs or {}, whole=split_policy is not None)
        graph_module, values = trace(mod, splits, pipe_split)
        if split_policy is not None:
            graph_module = split_policy(graph_module)
        split, count = split_graph(graph_module, pipe_split, values)
        return Pipe(split, count, False, None)

    def info(self) -> PipeInfo:
        """The facts that `build_stage` needs."""
        return PipeInfo(self.split_gm.graph, self.num_stages, self.has_loss_and_backward)

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> Any:
        """A stage for a schedule; its module goes to `device`."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self.info(), device, group)


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[[fx.GraphModule], fx.GraphModule] | None = None,
) -> Pipe:
    """Divide a module into stages.

    - `mb_args`, `mb_kwargs`: arguments for one micro-batch: the module runs on them twice, without gradients; buffers
      and random numbers are as before afterwards
    - `split_spec`: name of a part -> whether a stage begins before it or behind it; calls of `pipe_split` in `forward`
      count too
    - `split_policy`: a function that puts calls of `pipe_split` into the graph of the whole module

    Modules that hold split points are traced by `torch.fx`: which of their parts run may depend on sizes, which the
    stages check, but not on elements of tensors.  Arguments that are no tensors are constants.  A value that is used
    two stages later is handed on by the stage between.  ValueError for both of spec and policy; RuntimeError for what
    cannot be traced.
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    if split_spec is not None:
        annotate_split_points(module, split_spec)
    return Pipe.from_tracing(module, mb_args, mb_kwargs, split_policy)
