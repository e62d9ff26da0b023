"""Tuples that are taken apart where they were made."""

from __future__ import annotations

from rushlight.jit.ir.graph import Block, Graph

__all__ = ["lower_simple_tuples"]


def lower_simple_tuples(graph: Graph) -> None:
    """Replace the parts of tuples that are built in the same graph by the values that were put in."""
    _lower(graph.block)


def _lower(block: Block) -> None:
    for node in list(block.nodes):
        for inner in node.blocks:
            _lower(inner)
        made = node.inputs[0].node if node.inputs else None
        if made is None or made.kind_ != "prim::TupleConstruct":
            continue
        if node.kind_ == "prim::TupleUnpack":
            for old, new in zip(node.outputs, made.inputs, strict=True):
                name = old.name
                old.replace_all(new)
                if name and not new.name:
                    block.graph.forget(old)
                    new.set_name(name)
            node.destroy()
        elif (
            node.kind_ == "prim::TupleIndex"
            and node.inputs[1].node is not None
            and node.inputs[1].node.kind_ == "prim::Constant"
        ):
            at = node.inputs[1].node.attributes["value"]
            if -len(made.inputs) <= at < len(made.inputs):
                node.outputs[0].replace_all(made.inputs[at])
                node.destroy()
        if not made.outputs[0].uses and made.block is not None:
            made.destroy()
