"""Hostile checkpoints: folders whose `.metadata` or files of tensors were changed, and what must hold for every one of them.

    python -m tests.distributed.programs.checkpoint_fuzz 20000

Input number n is the same on every machine.
"""

from __future__ import annotations

import codecs
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from typing import Any

from tests.serialization.fuzz import CodeRanError, _audit, _watching, mutate_bytes, mutate_pickle

import rushlight as torch
import rushlight.distributed.checkpoint as dcp
from rushlight.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from rushlight.distributed.checkpoint.filesystem import _StorageInfo
from rushlight.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from rushlight.distributed.checkpoint.state_dict_loader import _load_state_dict
from rushlight.serialization.saving import pickled

# What a program has to expect of a load, whatever is in the folder.
ERRORS = ("UnpicklingError", "RuntimeError", "ValueError", "EOFError", "NotImplementedError", "FileNotFoundError")
SECONDS, MEMORY = 20, 2 << 30
_FOLDER = [""]


def contents() -> dict[str, Any]:
    """What the checkpoint holds."""
    return {
        "w": torch.ones(4, 3),
        "b": {"x": torch.zeros(2), "n": 3, "l": [torch.ones(1), {"k": "text"}]},
        "e": (1, 2.5),
    }


def make(folder: str) -> None:
    """A checkpoint that is as it should be."""
    dcp.save(contents(), checkpoint_id=folder, no_dist=True)


def structural(metadata: Any, rng: random.Random) -> bytes:
    """Metadata that is well formed and wrong."""
    key = rng.choice(list(metadata.storage_data))
    place, held = metadata.storage_data[key], metadata.state_dict_metadata["w"]
    kind = rng.randrange(9)
    if kind == 0:
        place.relative_path = rng.choice(
            ("../secret", "/etc/passwd", "a/../../secret", "", ".", "c:\\x", "x\0y", "link")
        )
    elif kind == 1:
        place.offset = rng.choice((-1, 1, 2**31, 2**62, 2**70))
    elif kind == 2:
        place.length = rng.choice((0, 1, 2**31, 2**62))
    elif kind == 3:
        held.size = torch.Size([2**40, 3])
        held.chunks = [ChunkStorageMetadata(torch.Size([0, 0]), held.size)]
    elif kind == 4:
        held.chunks = [*held.chunks, *held.chunks]
    elif kind == 5:
        held.chunks = rng.choice(([], [ChunkStorageMetadata(torch.Size([3, 0]), torch.Size([4, 3]))], None, [1]))
    elif kind == 6:
        metadata.planner_data["w"] = rng.choice(
            (("w", 2**40), (0, "w"), ("b",), ("b", "x", "y"), (), "w", (1.5,), ("e", 0))
        )
    elif kind == 7:
        metadata.storage_data[MetadataIndex("w", [0, 0])] = _StorageInfo("__0_0.distcp", 0, 10, ["nothing/1"])
    else:
        setattr(
            metadata, rng.choice(("storage_data", "state_dict_metadata", "planner_data")), rng.choice((None, 3, [], {}))
        )
    return pickled(metadata)


def outcome(number: int, whole: dict[str, bytes], folder: str) -> str:
    """Load input `number` in two ways: how that ended.  Raises for an error that no program expects."""
    rng = random.Random(number)
    files, way = dict(whole), rng.randrange(10)
    if way < 2:
        files[".metadata"] = mutate_bytes(whole[".metadata"], whole["__0_0.distcp"], rng)
    elif way < 5:
        files[".metadata"] = mutate_pickle(whole[".metadata"], rng)
    elif way < 7:
        files[".metadata"] = structural(dcp.FileSystemReader(_FOLDER[0]).read_metadata(), rng)
    else:
        files["__0_0.distcp"] = mutate_bytes(whole["__0_0.distcp"], whole[".metadata"], rng)
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)
    ends = []
    for state, planner in (({}, _EmptyStateDictLoadPlanner()), (contents(), None)):
        signal.alarm(SECONDS)
        _watching[0] = True
        try:
            _load_state_dict(state, dcp.FileSystemReader(folder), None, 0, True, planner)
            ends.append("loaded")
        except dcp.CheckpointException as error:
            ends.append(type(error.failures[0][0]).__name__)
            if ends[-1] not in ERRORS:
                raise error.failures[0][0] from None
        finally:
            _watching[0] = False
            signal.alarm(0)
    return ends[0]


def _opened(event: str, args: Any) -> None:
    """Nothing is opened but the checkpoint, and Python's own modules."""
    if event == "open" and _watching[0]:
        path = os.path.realpath(args[0]) if isinstance(args[0], (str, bytes)) else ""
        if "secret" in str(path) or str(path).startswith("/etc"):
            _watching[0] = False
            raise CodeRanError(f"opened {path}")


def _too_long(*_: Any) -> None:
    raise CodeRanError(f"no end after {SECONDS} seconds")


def main(count: int) -> Counter[str]:
    """Try that many inputs; how many ended how."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as root:
        _FOLDER[0], folder = os.path.join(root, "whole"), os.path.join(root, "checkpoint")
        make(_FOLDER[0])
        shutil.copytree(_FOLDER[0], folder)
        with open(os.path.join(root, "secret"), "wb") as out:
            out.write(b"x" * 100_000)
        os.symlink(os.path.join(root, "secret"), os.path.join(folder, "link"))
        whole = {name: open(os.path.join(folder, name), "rb").read() for name in (".metadata", "__0_0.distcp")}
        for number in range(60):  # whatever is loaded by the first use is loaded before
            outcome(-1 - number, whole, folder)
        for codec in ("cp437", "raw-unicode-escape", "ascii", "latin-1"):  # of names in archives, and of pickles
            codecs.lookup(codec)
        sys.addaudithook(_audit)
        sys.addaudithook(_opened)
        signal.signal(signal.SIGALRM, _too_long)
        held = int(open("/proc/self/statm").read().split()[0]) * 4096 if sys.platform == "linux" else 1 << 40
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.RLIM_INFINITY))
        for number in range(count):
            try:
                found[outcome(number, whole, folder)] += 1
            except BaseException as error:
                raise AssertionError(f"input {number} ended in {error!r:.500}") from error
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(dict(main(int(sys.argv[1]))))
