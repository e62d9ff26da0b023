"""Functions and classes of `torch.distributed` take what PyTorch's take: names, order, defaults."""

from __future__ import annotations

import enum
import importlib
import inspect
from typing import Any

import pytest

MODULES = (
    "distributed", "distributed._composable", "distributed._functional_collectives", "distributed.algorithms.ddp_comm_hooks.default_hooks",
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook", "distributed.algorithms.join", "distributed.algorithms._checkpoint.checkpoint_wrapper",
    "distributed.checkpoint", "distributed.checkpoint.default_planner", "distributed.checkpoint.filesystem", "distributed.checkpoint.format_utils",
    "distributed.checkpoint.planner", "distributed.checkpoint.staging", "distributed.checkpoint.state_dict", "distributed.checkpoint.stateful",
    "distributed.checkpoint.storage", "distributed.device_mesh", "distributed.distributed_c10d", "distributed.elastic.multiprocessing.api",
    "distributed.elastic.rendezvous.api", "distributed.fsdp", "distributed.fsdp.wrap", "distributed.launcher.api", "distributed.nn.functional",
    "distributed.optim", "distributed.pipelining", "distributed.pipelining.microbatch", "distributed.pipelining.schedules",
    "distributed.pipelining.stage", "distributed.rpc", "distributed.rpc.api", "distributed.tensor", "distributed.tensor._dtensor_spec",
    "distributed.tensor.debug", "distributed.tensor.experimental", "distributed.tensor.parallel", "distributed.tensor.placement_types",
    "nn.parallel", "utils.checkpoint",
)  # fmt: skip

# What differs, and why.
OTHERS = {
    "fsdp.ShardedGradScaler": "its device is the CPU, where there is no other",
    "_functional_collectives.AsyncCollectiveTensor.numpy": "inherited: results are there at once",
    "_functional_collectives.AsyncCollectiveTensor.tolist": "inherited: results are there at once",
    "distributed.DeviceMesh": "private arguments say how a mesh was made of another",
    "distributed.GradBucket": "the reducer makes it",
    "device_mesh.DeviceMesh": "private arguments say how a mesh was made of another",
    "launcher.api.elastic_launch": "no server that tells whether the launcher lives",
    "launcher.api.launch_agent": "no server that tells whether the launcher lives",
}

Parameters = list[inspect.Parameter]
BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
EMPTY = inspect.Parameter.empty


def parameters_of(function: Any) -> Parameters | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def callables_of(value: Any) -> dict[str, Parameters]:
    """The function itself, or the methods that a class defines, with the names that PyTorch's users write."""
    if not inspect.isclass(value):
        found = {"": parameters_of(value)} if callable(value) else {}
    elif issubclass(value, (enum.Enum, BaseException)):
        return {}
    else:
        found = {"": parameters_of(value.__init__)}
        own = {n for kind in value.__mro__ if ".distributed" in kind.__module__ for n in vars(kind)}
        found |= {
            f".{n}": parameters_of(getattr(value, n))
            for n in own
            if not n.startswith("_") and callable(getattr(value, n))
        }
    return {name: parameters for name, parameters in found.items() if parameters is not None}


def simple(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def accepts(ours: Parameters, theirs: Parameters) -> str:
    """Why a call of PyTorch's could mean something else here; empty where none could."""
    kinds = {p.kind for p in ours}
    places = [p for p in ours if p.kind in BY_PLACE]
    for k, wanted in enumerate(p for p in theirs if p.kind in BY_PLACE):
        if k >= len(places):
            if not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds:
                return f"lacks {wanted.name!r} at place {k}"
        elif (k or wanted.name not in ("self", "cls")) and places[k].name != wanted.name:
            return f"has {places[k].name!r} where PyTorch has {wanted.name!r}"
    held = {p.name: p for p in ours}
    for wanted in theirs:
        if wanted.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        mine = held.get(wanted.name)
        if mine is None:
            if wanted.kind is inspect.Parameter.KEYWORD_ONLY and inspect.Parameter.VAR_KEYWORD not in kinds:
                return f"lacks {wanted.name!r}"
        elif mine.default is EMPTY and wanted.default is not EMPTY:
            return f"{wanted.name!r} has no default"
        elif simple(mine.default) and simple(wanted.default) and mine.default != wanted.default:
            return f"{wanted.name!r} is {mine.default!r}, in PyTorch {wanted.default!r}"
    names = {p.name for p in theirs}
    asks = [p.name for p in ours if p.default is EMPTY and p.kind in (*BY_PLACE, inspect.Parameter.KEYWORD_ONLY)]
    return next((f"asks for {n!r}" for n in asks if n not in names and n != asks[0]), "")


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", MODULES)
def test_calls_of_pytorch_mean_the_same(module: str) -> None:
    pytest.importorskip("torch")
    theirs, ours = (importlib.import_module(f"{root}.{module}") for root in ("torch", "rushlight"))
    wrong = []
    for name in getattr(theirs, "__all__", None) or [n for n in dir(theirs) if not n.startswith("_")]:
        one, other = getattr(theirs, name, None), getattr(ours, name, None)
        if (
            one is None
            or other is None
            or inspect.ismodule(one)
            or not str(getattr(one, "__module__", "")).startswith("torch")
        ):
            continue
        known = callables_of(other)
        for method, wanted in callables_of(one).items():
            why = accepts(known[method], wanted) if method in known else ""
            place = f"{module.removeprefix('distributed.')}.{name}{method}"
            if why and place not in OTHERS:
                wrong.append(f"{place} {why}")
    assert not wrong
