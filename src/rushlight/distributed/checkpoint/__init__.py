"""`torch.distributed.checkpoint`: state that the processes of a job save and load together.

Every process writes its parts.  A checkpoint loads with another number of processes and in another layout, in PyTorch,
and from PyTorch.

>>> import rushlight as torch, tempfile
>>> import rushlight.distributed.checkpoint as dcp
>>> folder, model = tempfile.mkdtemp(), torch.nn.Linear(2, 1)
>>> done = dcp.save({"model": model}, checkpoint_id=folder, no_dist=True)
>>> other = torch.nn.Linear(2, 1)
>>> dcp.load({"model": other}, checkpoint_id=folder, no_dist=True)
>>> bool((model.weight == other.weight).all())
True
"""

from __future__ import annotations

from rushlight._interface.base import lazy_files

_PLACES = {
    "CheckpointException": "api",
    **dict.fromkeys(("DefaultLoadPlanner", "DefaultSavePlanner"), "default_planner"),
    **dict.fromkeys(("FileSystemReader", "FileSystemWriter"), "filesystem"),
    **dict.fromkeys(("HuggingFaceStorageReader", "HuggingFaceStorageWriter"), "hf_storage"),
    **dict.fromkeys(("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "TensorStorageMetadata"), "metadata"),
    "load_sharded_optimizer_state_dict": "optimizer",
    **dict.fromkeys(("LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner", "WriteItem"), "planner"),
    "QuantizedHuggingFaceStorageReader": "quantized_hf_storage",
    **dict.fromkeys(("load", "load_state_dict"), "state_dict_loader"),
    **dict.fromkeys(("async_save", "save", "save_state_dict"), "state_dict_saver"),
    **dict.fromkeys(("StorageReader", "StorageWriter"), "storage"),
}

__all__ = list(_PLACES)

__getattr__ = lazy_files(
    __name__,
    _PLACES,
    (
        "api",
        "default_planner",
        "filesystem",
        "format_utils",
        "hf_storage",
        "metadata",
        "optimizer",
        "planner",
        "planner_helpers",
        "quantized_hf_storage",
        "resharding",
        "staging",
        "state_dict",
        "state_dict_loader",
        "state_dict_saver",
        "stateful",
        "storage",
    ),
)
