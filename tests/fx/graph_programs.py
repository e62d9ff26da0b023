"""Random graphs, and what the passes that cut graphs make of them; `python graph_programs.py` writes PyTorch's answers.

The answers are stored as checksums in graph_programs.json: names of parts, the code of the graphs, results.
"""

from __future__ import annotations

import importlib
import json
import operator
import random
import sys
import zlib
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_suffix(".json")
COUNT = 60
TARGETS = ["_operator.add", "_operator.mul", "torch.sin", "torch.chunk", "_operator.getitem", "relu"]


def page(torch: Any, name: str) -> Any:
    return importlib.import_module(f"{torch.__name__}.fx.passes.{name}")


def graph_of(torch: Any, rng: random.Random) -> Any:
    """A traced module of two inputs with about a dozen nodes, some of them unused."""
    g = torch.fx.Graph()
    values = [g.placeholder("x"), g.placeholder("y")]
    for _ in range(rng.randint(3, 22)):
        kind = rng.randint(0, 5)
        one, other = rng.choice(values), rng.choice(values)
        if kind in (1, 2):
            values.append(g.call_function((operator.add, operator.mul)[kind - 1], (one, other)))
        elif kind == 3:
            values.append(g.call_method("relu", (one,)))
        elif kind == 5:
            pair = g.call_function(torch.chunk, (one, 2))
            values += [g.call_function(operator.getitem, (pair, 0)) for _ in range(2)]
        else:
            values.append(g.call_function(torch.sin if kind == 0 else torch.cos, (one,)))
    g.output(tuple(rng.sample(values[2:], min(3, len(values) - 2))))
    return torch.fx.GraphModule(torch.nn.Module(), g)


def partitioned(torch: Any, seed: int) -> Any:
    rng = random.Random(seed)
    gm = graph_of(torch, rng)
    support = page(torch, "operator_support")
    table = support.OperatorSupport(dict.fromkeys(rng.sample(TARGETS, rng.randint(1, 5))))
    calls = support.create_op_support(lambda modules, node: node.op.startswith("call"))
    partitioner = page(torch, "infra.partitioner").CapabilityBasedPartitioner(
        gm,
        support.chain(calls, table),
        allows_single_node_partition=rng.random() < 0.5,
        skip_horizontal_fusion=rng.random() < 0.3,
    )
    parts = partitioner.propose_partitions()
    names = [[node.name for node in part.nodes] for part in parts]
    fused = partitioner.fuse_partitions(parts)
    fused.recompile()
    inner = [getattr(fused, node.target).code for node in fused.graph.nodes if node.op == "call_module"]
    return [names, fused.code, inner]


def split(torch: Any, seed: int) -> Any:
    rng = random.Random(seed)
    gm = graph_of(torch, rng)
    tags, reached = ["a", "b", "c"], 0
    for node in gm.graph.nodes:
        if node.op.startswith("call"):
            reached += rng.random() < 0.3 and reached < 2
            node.tag = tags[reached]
    cut, paths = page(torch, "split_utils").split_by_tags(
        gm, tags, return_fqn_mapping=True, return_tuple=rng.random() < 0.5
    )
    return [cut.code, [getattr(cut, tag).code for tag in tags], paths]


def together(torch: Any, seed: int) -> Any:
    """A sorted graph, and the groups that pass other values than tensors."""
    rng = random.Random(seed)
    gm = graph_of(torch, rng)
    gm.graph.eliminate_dead_code()
    tools = page(torch, "tools_common")
    tools.legalize_graph(gm)
    gm.recompile()
    chosen = {node for node in gm.graph.nodes if node.op.startswith("call") and rng.random() < 0.8}
    for node in gm.graph.nodes:
        if node.target not in (torch.chunk, torch.cos):
            node.meta["tensor_meta"] = 1
    groups = tools.FxNetAccFusionsFinder(gm, chosen)()
    shown = sorted((node.name, sorted(each.name for each in group)) for node, group in groups.items())
    return [gm.code, shown, sorted(node.name for node in chosen)]


def answers(torch: Any) -> dict[str, list[int]]:
    def checksum(found: Any) -> int:
        return zlib.crc32(json.dumps(found, sort_keys=True).replace("rushlight", "torch").encode())

    return {f.__name__: [checksum(f(torch, seed)) for seed in range(COUNT)] for f in (partitioned, split, together)}


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(answers(importlib.import_module("torch"))) + "\n")
    sys.exit()
