"""Profiles, counts of collectives, traces of all ranks, and who is waited for."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.distributed.programs import watch_programs as programs
from tests.distributed.ranks import Ranks

from rushlight.distributed.flight_recorder import fr_trace

# The rows that PyTorch 2.13 shows for the same program (its `gloo:all_reduce` under reduce_scatter aside).
ROWS = {
    "c10d::allreduce_": 2, "gloo:all_reduce": 2, "c10d::broadcast_": 1, "gloo:broadcast": 1, "c10d::allgather_": 1, "c10d::_allgather_base_": 1,
    "gloo:all_gather": 2, "c10d::_reduce_scatter_base_": 1, "c10d::reduce_scatter_": 1, "gloo:reduce_scatter": 2, "c10d::barrier": 1, "gloo:barrier": 1,
    "c10d::reduce_": 1, "gloo:reduce": 1, "c10d::alltoall_base_": 1, "gloo:all_to_all": 1, "c10d::gather_": 1, "gloo:gather": 1, "c10d::scatter_": 1,
    "gloo:scatter": 1,
}  # fmt: skip


def test_profiles_show_collectives(four: Ranks, tmp_path: Path) -> None:
    for rank, (counts, info, rows) in enumerate(four.run(programs.profiled, str(tmp_path))):
        messages = {0: {"c10d::send": 1, "gloo:send": 1}, 1: {"c10d::recv_": 1, "gloo:recv": 1}}.get(rank, {})
        assert counts == ROWS | messages
        assert (info["rank"], info["world_size"]) == (rank, 4) and info["pg_config"][0]["ranks"] == [0, 1, 2, 3]
        first, second = (row["args"] for row in rows[:2])
        assert (first["Collective name"], first["Reduction"], first["dtype"]) == ("all_reduce", "sum", "float32")
        assert (first["In msg nelems"], first["In bytes"], first["Out msg nelems"]) == (12, 48, 12)
        assert first["Process Group Ranks"] == "[0, 1, 2, 3]" and second["Seq"] == first["Seq"] + 1
        assert not first["Is asynchronized op"] and second["Is asynchronized op"]
        assert rows[0]["tid"] != rows[1]["tid"] and 0 <= first["Blocked us"] - rows[0]["dur"] < 1e5
    assert four.run(programs.profiled_ddp)[0] == {"c10d::allreduce_": 1, "gloo:all_reduce": 1}
    assert all(four.run(programs.signalled, str(tmp_path / "flight_")))
    assert fr_trace.main([str(tmp_path), "-p", "flight_", "-j"]) == 0
    shown = four.run(programs.stopped)
    assert [one[1] for one in shown] == [1234] * 4
    assert [len(one[0]) for one in shown] == [0, 2, 0, 0] and shown[1][0][1] == "stopped"


# What PyTorch 2.13 prints for this program (two processes; colours, and the name of the model's class, aside).
TABLE = """Global
  FORWARD PASS
    *c10d_functional.all_reduce: 1
    MLP
      FORWARD PASS
        *c10d_functional.all_reduce: 1
        MLP.net1
        MLP.relu
        MLP.net2
          FORWARD PASS
            *c10d_functional.all_reduce: 1
"""
OPERATIONS = [
    "**aten.addmm.default", "sharding: [(Shard(dim=0),), (Replicate(),), (Shard(dim=1),)]",
    "**aten.mm.default", "sharding: [(Shard(dim=0),), (Replicate(),)]",
    "**aten.sum.dim_IntList", "sharding: [(Shard(dim=1),)]",
    "**aten.addmm.default", "sharding: [(Replicate(),), (Shard(dim=1),), (Shard(dim=0),)]",
    "**aten.mm.default", "sharding: [(Replicate(),), (Shard(dim=1),)]",
    "**aten.mm.default", "sharding: [(Replicate(),), (Shard(dim=1),)]",
    "**aten.sum.dim_IntList", "sharding: [(Replicate(),)]",
]  # fmt: skip


def test_collectives_are_counted_by_module(four: Ranks, tmp_path: Path) -> None:
    found = four.run(programs.counted, str(tmp_path))
    counts, total, table, text, tree, placements, plain, drawn = found[0]
    assert counts == {"c10d_functional.all_reduce": 1} and total == 1
    assert re.sub("\\x1b.*?m", "", table) == TABLE and "\033[1;33m    *c10d_functional.all_reduce: 1\033[0m\n" in table
    assert "        *Parameter List\n         *weight: (Shard(dim=0),)\n         *bias: (Shard(dim=0),)\n" in text
    assert [line.strip() for line in text.splitlines() if "**" in line or "sharding" in line] == OPERATIONS
    (model,) = tree["children"]
    assert [child["fqn"] for child in model["children"]] == ["MLP.net1", "MLP.relu", "MLP.net2"]
    assert model["children"][2]["collectives_forward"] == [["c10d_functional.all_reduce", 1]]
    assert [str(p) for p in placements.values()] == [
        "(Shard(dim=0),)",
        "(Shard(dim=0),)",
        "(Shard(dim=1),)",
        "(Replicate(),)",
    ]
    assert plain == {
        "c10d_functional.all_to_all_single": 1, "c10d_functional.all_gather_into_tensor": 1, "c10d_functional.all_reduce": 2,
        "c10d.allreduce_": 1, "c10d._allgather_base_": 1,
    }  # fmt: skip
    lines = [line.split() for line in drawn.splitlines()]
    assert lines[0] == ["columns"] and lines[1] == ["Col", "0-1", "Col", "2-3", "Col", "4-5"]
    assert lines[3] == ["Row", "0-4", "cpu:0", "cpu:1", "cpu:2"]  # the fourth has none
    assert lines[6] == ["Row", "0-2", "cpu:0,", "cpu:1,", "cpu:2,", "cpu:3"]
    assert all(one[-1] == "" for one in found[1:])


def test_one_trace_of_all_ranks_and_who_is_waited_for(four: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    found = four.run(programs.together, str(path))
    assert [one[0] for one in found] == [str(path), None, None, None]
    rows = json.loads(path.read_text())["traceEvents"]
    named = {row["pid"]: row["args"]["name"] for row in rows if row["name"] == "process_name"}
    assert named == {rank: f"rank {rank}" for rank in range(4)}
    reduced = [row for row in rows if row["name"] == "gloo:all_reduce" and not row["args"]["Is asynchronized op"]]
    assert sorted(row["pid"] for row in reduced) == [0, 1, 2, 3]
    assert {row["args"]["Waited for rank"] for row in reduced} == {1}
    assert all(row["args"]["Waited us"] > 3e4 for row in reduced if row["pid"] != 1)
    assert next(row for row in reduced if row["pid"] == 1)["args"]["Waited us"] == 0
    assert max(row["ts"] for row in reduced) < min(row["ts"] + row["dur"] for row in reduced)  # one clock
    arrows = [row for row in rows if row.get("cat") == "collective"]
    assert len(arrows) == 2 * 2 * 3 and {row["pid"] for row in arrows if row["ph"] == "s"} >= {1}
    for _, shared, measured, _, _ in found:  # one machine has one clock
        assert shared == [0.0] * 4 and measured == found[0][2] and all(abs(x) < 0.2 for x in measured)
    balance = {row["rank"]: row for row in found[0][3]}
    assert [row["rank"] for row in found[3][3]] == [0, 1, 2, 3]
    for rank in (0, 1, 3):
        assert balance[rank]["culprits"][2] > 0.15 and balance[rank]["collectives"] == 2
    assert balance[2]["awaited"] > 0.5 and balance[2]["culprits"].get(2) is None
    assert balance[1]["transfer"] < 0.25 and balance[1]["compute"] < 0.25  # nobody waits for work that all have begun
    assert balance[0]["messages"] > 0 and balance[0]["nbytes"] == 8000
    for row in balance.values():
        assert abs(sum(row[k] for k in ("compute", "waiting", "transfer", "messages")) - row["wall"]) < 1e-3
    lines = found[0][4].splitlines()
    assert lines[0].split()[:4] == ["rank", "wall", "compute", "waiting"] and "rank 2" in lines[3]
