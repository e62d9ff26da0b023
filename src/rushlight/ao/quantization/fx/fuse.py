"""Fusing in graphs: layers called one after another become one module."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rushlight import nn
from rushlight.ao.quantization.backend_config.native import RELUS

__all__ = ["fuse", "kind_of"]


def kind_of(node: Any, modules: dict[str, Any]) -> Any:
    """The target of a node: a class of modules, a function, the name of a method; None for inputs and results."""
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


def _hits(model: Any, modules: dict[str, Any], backend_config: Any) -> list[tuple[list[list[Any]], Any]]:
    """(rows of nodes that call the same modules, the method that fuses them) for each pattern that is met.

    A row is left where one of its modules is called elsewhere, too: that call would get the fused layer.
    """
    patterns = {
        c.pattern: c.fuser_method for c in backend_config.configs if c.fuser_method and isinstance(c.pattern, tuple)
    }
    rows: dict[tuple[Any, ...], tuple[list[list[Any]], Any]] = {}
    taken: set[Any] = set()
    for node in model.graph.nodes:
        if node.op != "call_module" or node in taken:
            continue
        hit = chain_from(node, modules, patterns)
        if hit is not None:
            taken.update(hit[0])
            key = (*(n.target if n.op == "call_module" else None for n in hit[0]), hit[1])
            rows.setdefault(key, ([], hit[1]))[0].append(hit[0])
    calls = Counter(n.target for n in model.graph.nodes if n.op == "call_module")
    return [
        (found, method)
        for found, method in rows.values()
        if all(
            calls[n.target] == len(found) for n in found[0] if n.op == "call_module" and modules[n.target]._parameters
        )
    ]


def fuse(model: Any, is_qat: bool, backend_config: Any, scopes: dict[str, Any] | None = None) -> Any:
    """The graph module with the patterns of the backend fused, in place."""
    modules = dict(model.named_modules())
    for rows, method in _hits(model, modules, backend_config):
        parts = [modules[n.target] if n.op == "call_module" else nn.ReLU() for n in rows[0]]
        for part in parts[1:]:
            part.training = parts[0].training
        made = method(is_qat, *parts)
        made.qconfig = getattr(parts[0], "qconfig", None)
        target = rows[0][0].target
        parent, _, last = target.rpartition(".")
        setattr(model.get_submodule(parent), last, made)
        modules[target] = made
        for first, *others in rows:
            (others or [first])[-1].replace_all_uses_with(first)
            for rest in others[::-1]:
                model.graph.erase_node(rest)
    model.graph.lint()
    model.delete_all_unused_submodules()
    model.recompile()
    return model
