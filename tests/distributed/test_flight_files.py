"""What files of flight recorders say: ranks that differ, that are missing, operations and messages that do not end."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from rushlight.distributed.flight_recorder import fr_trace
from rushlight.distributed.flight_recorder.analysis import analyse
from rushlight.distributed.flight_recorder.files import read_directory


def entry(
    number: int, name: str = "all_reduce", size: tuple[int, ...] = (3,), state: str = "completed", **more: Any
) -> Any:
    message = name.startswith(("send", "recv"))
    return {
        "frames": [{"filename": "/site-packages/torch/distributed/c10d.py", "line": 1, "name": name}, {"filename": "train.py", "line": number, "name": "step"}],
        "process_group": ("0", "default_pg"), "collective_seq_id": 0 if message else number, "p2p_seq_id": number if message else 0, "is_p2p": message,
        "profiling_name": f"gloo:{name}", "input_sizes": [size], "input_dtypes": ["float32"], "output_sizes": [size], "state": state,
    } | more  # fmt: skip


def files(*ranks: list[Any], world: int | None = None, name: str = "0") -> dict[int, Any]:
    config = {name: {"name": name, "desc": "default_pg", "ranks": str(list(range(world or len(ranks))))}}
    return {rank: {"version": "2.10", "pg_config": config, "entries": own} for rank, own in enumerate(ranks)}


def kinds(found: Any) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(f.kind, f.number, f.ranks) for f in analyse(found)]


def test_the_first_operation_that_differs_is_found() -> None:
    good = [entry(1), entry(2), entry(3)]
    assert kinds(files(good, good, good)) == []
    assert kinds(files(good, good, good[:2])) == [("missing", 3, (2,))]
    for other in ({"size": (4,)}, {"name": "broadcast"}, {"input_dtypes": ["float64"]}, {"reduction": "max"}):
        assert kinds(files(good, [entry(1), entry(2, **other), entry(3)], good)) == [("mismatch", 2, (1,))]
    assert kinds(files(good, [entry(1), entry(2, size=(4,))])) == [("mismatch", 2, (0, 1))]  # nobody is in the majority
    running = [entry(1), entry(2, state="started")]
    assert kinds(files(running, running)) == [("unfinished", 2, (0, 1))]
    assert kinds(files(good[:2], running, good[:2])) == [("unfinished", 2, (1,))]


def test_what_may_differ_does_not_count() -> None:
    assert kinds(files([entry(1, "all_gather", (2,))], [entry(1, "all_gather", (5,))])) == []
    # A ring has forgotten the first operations of a rank that did more elsewhere.
    assert kinds(files([entry(k) for k in (1, 2, 3)], [entry(k) for k in (2, 3)])) == []
    # PyTorch's group of the CPU: no name in the table, and nothing is ever completed.
    retired = [entry(1, state="scheduled", retired=True)]
    assert kinds(files(retired, retired, name="")) == []
    assert kinds(files([*retired, entry(2)], retired, name="")) == [("missing", 2, (1,))]


def test_messages_and_ranks_without_a_file() -> None:
    sent = [entry(1), entry(1, "send 0->1", state="started")]
    assert kinds(files(sent, [entry(1)])) == [("message", 0, (0,))]
    assert kinds(files([entry(1)], world=2)) == [("no file", 0, (1,))]


def test_the_command_reads_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, file in files([entry(1), entry(2)], [entry(1)], [entry(1), entry(2)]).items():
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(file))
    assert sorted(read_directory(str(tmp_path))) == [0, 1, 2]
    assert fr_trace.main([str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert (
        "ranks 1 have not come to collective #2" in text
        and "ranks [0, 2]: gloo:all_reduce float32 [3], completed, at train.py:2 in step" in text
    )
    (tmp_path / "other_0").write_bytes(b"")
    with pytest.raises(ValueError, match="several prefixes"):
        read_directory(str(tmp_path))
    with pytest.raises(ValueError, match="no file of a flight recorder"):
        read_directory(str(tmp_path), "other_")
    (tmp_path / "trace_1").unlink()
    assert fr_trace.main([str(tmp_path), "-p", "trace_"]) == 2 and "ranks 1 wrote nothing" in capsys.readouterr().out
    assert fr_trace.main([str(tmp_path), "-p", "trace_", "--allow-incomplete-ranks"]) == 1
