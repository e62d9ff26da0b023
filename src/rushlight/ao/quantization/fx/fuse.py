"""Fusing in graphs: layers called one after another become one module."""

from __future__ import annotations

from typing import Any

from rushlight import nn
from rushlight.ao.quantization.backend_config.native import RELUS

__all__ = ["fuse", "kind_of"]


def kind_of(node: Any, modules: dict[str, Any]) -> Any:
    """What a node calls: a class of modules, a function, the name of a method; None for inputs and results."""
    if node.op == "call_module":
        return type(modules[node.target])
    return node.target if node.op in ("call_function", "call_method") else None


def chain_from(
    node: Any, modules: dict[str, Any], patterns: dict[tuple[Any, ...], Any]
) -> tuple[list[Any], Any] | None:
    """The longest row of nodes from `node` on that is one of the patterns, each read by the next alone."""
    nodes, found = [node], None
    kinds: list[Any] = [kind_of(node, modules)]
    while any(p[: len(kinds)] == tuple(kinds) for p in patterns):
        if tuple(kinds) in patterns:
            found = list(nodes), patterns[tuple(kinds)]
        users = list(nodes[-1].users)
        if len(users) != 1 or users[0].args[:1] != (nodes[-1],):
            break
        nodes.append(users[0])
        kind = kind_of(users[0], modules)
        kinds.append(nn.ReLU if kind in RELUS else kind)
    return found


def fuse(model: Any, is_qat: bool, backend_config: Any, scopes: dict[str, Any] | None = None) -> Any:
    """The graph module with the patterns of the backend fused, in place."""
    modules = dict(model.named_modules())
    patterns = {
        c.pattern: c.fuser_method for c in backend_config.configs if c.fuser_method and isinstance(c.pattern, tuple)
    }
    for node in list(model.graph.nodes):
        if node.op != "call_module" or node.graph is not model.graph:
            continue
        hit = chain_from(node, modules, patterns)
        if hit is None:
            continue
        nodes, method = hit
        parts = [modules[n.target] if n.op == "call_module" else nn.ReLU() for n in nodes]
        for part in parts[1:]:
            part.training = parts[0].training
        made = method(is_qat, *parts)
        made.qconfig = getattr(parts[0], "qconfig", None)
        parent, _, last = node.target.rpartition(".")
        setattr(model.get_submodule(parent), last, made)
        modules[node.target] = made
        nodes[-1].replace_all_uses_with(node)
        for rest in nodes[:0:-1]:
            model.graph.erase_node(rest)
    model.graph.lint()
    model.delete_all_unused_submodules()
    model.recompile()
    return model
