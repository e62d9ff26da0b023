"""`torch.fx.passes.param_fetch`: attributes of modules that a backend needs, noted on the nodes that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import nn, typename
from rushlight.fx.graph_module import GraphModule

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


def default_matching(name: str, target_version: int) -> str:
    """The name itself: attributes have the same names in every version."""
    return name


# Class -> version of its parameters, attributes, and the name of an attribute in another version.
module_fetch_book: dict[type, tuple[int, list[str], Callable[[str, int], str]]] = {
    kind: (version, names.split(), default_matching)
    for kind, version, names in (
        (nn.Linear, 1, "weight bias"),
        (nn.Conv2d, 1, "weight bias kernel_size stride padding dilation groups padding_mode"),
        (nn.BatchNorm2d, 2, "weight bias running_mean running_var eps"),
        (nn.AdaptiveAvgPool2d, 1, ""),
        (nn.MaxPool2d, 1, "kernel_size stride padding dilation return_indices ceil_mode"),
        (nn.ReLU, 1, "inplace"),
    )
}


def extract_attrs_for_lowering(mod: nn.Module) -> dict[str, Any]:
    """The class's name and the attributes that `module_fetch_book` lists for it.

    RuntimeError for other classes, and for modules of a later version than the book's.
    """
    entry = module_fetch_book.get(type(mod))
    if entry is None:
        raise RuntimeError(
            f"{typename(mod)} is not in the module_fetch_book yet, please add it to the module_fetch_book"
        )
    version, names, place = entry
    if version < mod._version:
        raise RuntimeError(
            f"Fetcher version {version} try to fetch {typename(mod)} version {mod._version}, please upgrade the "
            "module_fetch_book"
        )
    return {"name": typename(mod), **{name: getattr(mod, place(name, mod._version)) for name in names}}


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Note `node.attrs_for_lowering` on nodes that call modules, those of inner graphs too."""
    modules = dict(fx_module.named_modules())
    node: Any
    for node in fx_module.graph.nodes:
        if node.op == "call_module":
            called = modules[node.target]
            if isinstance(called, GraphModule):
                lift_lowering_attrs_to_nodes(called)
            else:
                node.attrs_for_lowering = extract_attrs_for_lowering(called)
