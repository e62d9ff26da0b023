"""Checkpoints in several files, as Hugging Face lays them out: shards in the safetensors format, and an index that says
what is where.

A checkpoint is a folder with `model.safetensors` alone, or with shards and `model.safetensors.index.json`.  Saving
replaces an older checkpoint in one step: new shards get names of their own, the index (or the one file) is put in place
last, and only then do old files go.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable
from typing import Any

import rushlight
from rushlight.serialization import memory, safetensors
from rushlight.serialization.replacing import replacing

__all__ = ["load_sharded", "save_sharded"]

_UNITS = {
    "": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_ONE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARD = re.compile(r"model-[0-9a-f]{8}-\d{5}-of-\d{5}\.safetensors")


def save_sharded(
    state_dict: dict[str, Any],
    folder: Any,
    *,
    max_shard_size: int | str = "5GB",
    metadata: dict[str, str] | None = None,
) -> dict[str, str]:
    """Write a state dict into a folder, in files of at most `max_shard_size` bytes (a number, or a text such as
    "500MB"), and say what is where.

    A larger tensor gets a file of its own.  Tensors that are one and the same are written once.  At every moment the
    folder holds the older checkpoint or the new one; two programs must not save to one folder at a time.

    Example: `torch.serialization.sharded.save_sharded(model.state_dict(), "checkpoint", max_shard_size="2GB")`
    """
    kept, aliases = _without_aliases(state_dict)
    shards = _split(kept, _bytes(max_shard_size))
    folder = os.fspath(folder)
    os.makedirs(folder, exist_ok=True)
    before = _files(folder)
    texts = {"format": "pt", **(metadata or {}), **aliases}
    if len(shards) == 1:
        safetensors.save_file(shards[0], os.path.join(folder, _ONE), texts)
        placed, keep = dict.fromkeys(kept, _ONE), {_ONE}
    else:
        token, placed = secrets.token_hex(4), {}
        for number, shard in enumerate(shards, 1):
            name = f"model-{token}-{number:05d}-of-{len(shards):05d}.safetensors"
            safetensors.save_file(shard, os.path.join(folder, name), texts)
            placed.update(dict.fromkeys(shard, name))
        total = sum(x.nbytes for x in kept.values())
        with replacing(os.path.join(folder, _INDEX)) as out:
            out.write(
                json.dumps(
                    {"metadata": {"total_size": total, **texts}, "weight_map": placed}, indent=2, sort_keys=True
                ).encode()
            )
        keep = {_INDEX, *placed.values()}
    # The one file is looked for before the index, so it goes first: until then the older checkpoint holds.
    for name in sorted(before - keep, key=lambda name: (name != _ONE, name != _INDEX)):
        os.unlink(os.path.join(folder, name))
    return placed | {alias: placed[name] for alias, name in aliases.items()}


def _bytes(size: int | str) -> int:
    if isinstance(size, int):
        found = size
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]I?B)?", size.strip().upper())
        if match is None:
            raise ValueError(f"expected a size such as 5_000_000 or '500MB', found {size!r}")
        found = int(float(match[1]) * _UNITS[match[2] or ""])
    if found <= 0:
        raise ValueError(f"the maximal size of a shard must be positive, found {size!r}")
    return found


def _without_aliases(state_dict: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Dense tensors with memory of their own, and which names stand for the same tensor as another."""
    kept: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    seen: dict[Any, str] = {}
    owners: set[int] = set()
    for name, x in state_dict.items():
        if not isinstance(x, rushlight.Tensor):
            raise ValueError(f"a sharded checkpoint holds tensors, and {name!r} is a {type(x).__name__}")
        form = (
            (x.data_ptr(), x.dtype, tuple(x.shape), tuple(x.stride()), x.is_conj() or x.is_neg()) if x.numel() else name
        )
        if form in seen:
            aliases[name] = seen[form]
            continue
        seen[form] = name
        owner = memory.identity(memory.storage_of(x))
        part = x.detach().resolve_conj().resolve_neg().contiguous()
        kept[name] = part.clone() if owner in owners and part.data_ptr() == x.data_ptr() else part
        owners.add(owner)
    return kept, aliases


def _split(tensors: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    shards: list[dict[str, Any]] = [{}]
    held = 0
    for name, x in tensors.items():
        if shards[-1] and held + x.nbytes > limit:
            shards.append({})
            held = 0
        shards[-1][name] = x
        held += x.nbytes
    return shards


def _files(folder: str) -> set[str]:
    """The files of a checkpoint, also of one that was not finished."""
    return {name for name in os.listdir(folder) if name in (_ONE, _INDEX) or _SHARD.fullmatch(name)}


def load_sharded(folder: Any, names: Iterable[str] | None = None, *, device: Any = "cpu") -> dict[str, Any]:
    """The tensors of a checkpoint in a folder: all, or those named, for which only the files that hold them are opened.

    They are views of mapped files.  FileNotFoundError where there is no checkpoint, KeyError for a name that it lacks,
    ValueError for an index that names files outside of the folder.

    Example: `model.load_state_dict(torch.serialization.sharded.load_sharded("checkpoint"))`
    """
    folder = os.fspath(folder)
    places, aliases = _index(folder)
    wanted = [*places, *aliases] if names is None else list(names)
    missing = [name for name in wanted if aliases.get(name, name) not in places]
    if missing:
        raise KeyError(f"the checkpoint in {folder} has no {missing[:5]}")
    found: dict[str, Any] = {}
    for file in dict.fromkeys(places[aliases.get(name, name)] for name in wanted):
        with safetensors.safe_open(os.path.join(folder, file), device=device) as shard:
            found.update(
                {name: shard.get_tensor(name) for name in {aliases.get(n, n) for n in wanted} if places[name] == file}
            )
    return {name: found[aliases.get(name, name)] for name in wanted}


def _index(folder: str) -> tuple[dict[str, str], dict[str, str]]:
    """Which file holds which tensor, and the names that stand for others."""
    one, index = os.path.join(folder, _ONE), os.path.join(folder, _INDEX)
    if os.path.exists(one):
        with safetensors.safe_open(one) as file:
            places, texts = dict.fromkeys(file.keys(), _ONE), file.metadata() or {}
    elif os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            held = json.load(file)
        if not isinstance(held, dict) or not isinstance(held.get("weight_map"), dict):
            raise ValueError(f"{index}: expected an index with a 'weight_map'")
        places, texts = held["weight_map"], held.get("metadata") or {}
        for name in places.values():
            if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
                raise ValueError(f"{index}: a shard must be a file of the same folder, found {name!r}")
    else:
        raise FileNotFoundError(f"there is no checkpoint in {folder}: neither {_ONE} nor {_INDEX}")
    return places, {
        alias: name for alias, name in texts.items() if alias not in places and isinstance(name, str) and name in places
    }
