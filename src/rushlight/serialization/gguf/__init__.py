"""Files in the GGUF format: metadata, and tensors whose numbers may lie packed in blocks of a few bits.

`load_file` gives tensors over the mapped file.  Packed weights stay packed: a `PackedWeight` is decoded where it is read, by
`PackedLinear` and `PackedEmbedding`, which `load_packed` puts in the place of a model's layers.  `save_file` writes such files.

>>> import tempfile, rushlight as torch
>>> from rushlight.serialization import gguf
>>> path = f"{tempfile.mkdtemp()}/model.gguf"
>>> gguf.save_file({"weight": torch.eye(2, 32)}, path, metadata={"general.architecture": "none"})
>>> with gguf.open_file(path) as file:
...     print(file.metadata, file.keys(), file.get_tensor("weight").shape)
{'general.architecture': 'none'} ['weight'] torch.Size([2, 32])
"""

from __future__ import annotations

from rushlight._interface.base import lazy_files

_PLACES = {
    **dict.fromkeys(("GGUFError", "GGUFFile", "TensorInfo", "load_file", "open_file"), "reading"),
    **dict.fromkeys(("PackedEmbedding", "PackedLinear", "PackedWeight", "load_packed"), "packed"),
    "save_file": "writing",
}

__all__ = list(_PLACES)

__getattr__ = lazy_files(__name__, _PLACES, ())
