"""Real PyTorch's side of checkpoints: writes and reads them, in processes of its own.

python tests/distributed/programs/pytorch_checkpoint.py store     # writes checkpoint_of_pytorch/, which the tests read without PyTorch
python tests/distributed/programs/pytorch_checkpoint.py write FOLDER
python tests/distributed/programs/pytorch_checkpoint.py read FOLDER     # prints what is in it
"""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
import warnings
from typing import Any

STORED = pathlib.Path(__file__).with_name("checkpoint_of_pytorch")


def contents(t: Any, spread: Any = None) -> dict[str, Any]:
    """The same objects made with PyTorch or with rushlight; `spread(tensor, dim)` divides a tensor among ranks."""
    divided = spread or (lambda x, dim: x)
    return {
        "model": {
            "rows": divided(t.arange(15.0).view(5, 3), 0),
            "columns": divided(t.arange(8.0).view(2, 4), 1),
            "whole": divided(t.ones(3, dtype=t.bfloat16), None),
            "plain": t.tensor([True, False]),
            "count": t.tensor(7),
        },
        "groups": [{"lr": 0.5, "betas": (0.9, 0.99), "params": ["a", "b"]}, {"x": t.full((2,), 2.0)}],
        "epoch": 3,
        "text": "ä",
    }


def _save(rank: int, folder: str, where: str) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=2)
    mesh = dist.init_device_mesh("cpu", (2,))

    def spread(x: Any, dim: int | None) -> Any:
        return distribute_tensor(x, mesh, [Replicate() if dim is None else Shard(dim)])

    dcp.save(contents(torch, spread), checkpoint_id=folder)
    dist.destroy_process_group()


def write(folder: str) -> None:
    """A checkpoint of two ranks."""
    import torch.multiprocessing as mp

    mp.spawn(_save, (folder, f"{folder}.rendezvous"), 2)


def read(folder: str) -> dict[str, Any]:
    """What a checkpoint has, as PyTorch reads it, with tensors as lists."""
    import torch
    import torch.distributed.checkpoint as dcp

    def emptied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.zeros_like(value)
        if isinstance(value, dict):
            return {key: emptied(inner) for key, inner in value.items()}
        return [emptied(inner) for inner in value] if isinstance(value, list) else None

    state = emptied(contents(torch))
    dcp.load(state, checkpoint_id=folder)
    return listed(state)


def listed(value: Any) -> Any:
    """Tensors and tuples as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: listed(inner) for key, inner in value.items()}
    return [listed(inner) for inner in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "store":
        shutil.rmtree(STORED, ignore_errors=True)
        write(str(STORED))
    elif sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        print(json.dumps(read(sys.argv[2])))
