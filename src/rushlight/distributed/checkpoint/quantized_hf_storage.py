"""Quantized checkpoints in Hugging Face's form, read as floating numbers.

Two forms are known: 8-bit weights with a scale for each square block (`x.weight` and `x.weight_scale_inv`), and 4-bit
weights with an exponent for each group of 32 (`x_blocks` and `x_scales`).
"""

from __future__ import annotations

import os
from typing import Any

import rushlight
from rushlight import Size, Tensor
from rushlight._interface.base import LazyModule
from rushlight.distributed.checkpoint._hf_reader import HuggingFaceStorageReader, spans
from rushlight.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from rushlight.distributed.checkpoint.planner import ReadItem

safetensors: Any = LazyModule("rushlight.serialization.safetensors")

__all__ = ["QuantizedHuggingFaceStorageReader"]

_FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
_FP4_BIAS = 127
_ENDINGS = ((".weight", ".weight_scale_inv"), ("_blocks", "_scales"))


class QuantizedHuggingFaceStorageReader(HuggingFaceStorageReader):
    """Reads quantized weights as `target_dtype`; `block_size` is the edge of the blocks of 8-bit weights.

    Tensors without scales are read as they are.  `x_blocks` appears with the shape of the numbers in it.
    """

    def __init__(
        self, path: str, thread_count: int = 1, target_dtype: Any = rushlight.float32, block_size: int = 128
    ) -> None:
        super().__init__(path, thread_count)
        self.target_dtype = target_dtype
        self.block_size = block_size
        self._scales: dict[str, str] = {}

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        metadata = super().read_metadata(*args, **kwargs)
        self._files = {key.fqn: place.relative_path for key, place in metadata.storage_data.items()}
        for name, held in metadata.state_dict_metadata.items():
            assert isinstance(held, TensorStorageMetadata)
            for ending, of_scales in _ENDINGS:
                scales = name.removesuffix(ending) + of_scales
                if not name.endswith(ending) or scales not in metadata.state_dict_metadata:
                    continue
                if len(held.chunks) > 1:
                    raise RuntimeError(f"{name!r} is quantized, and lies in parts")
                self._scales[name] = scales
                held.properties.dtype = self.target_dtype
                if ending == "_blocks":
                    *rows, groups, width = held.size
                    held.size = Size([*rows, groups * width * 2])
                    held.chunks[0].offsets, held.chunks[0].sizes = Size([0] * len(held.size)), held.size
        metadata.storage_data = {
            MetadataIndex(key.fqn, [0] * self._ndim(metadata, key.fqn)) if key.fqn in self._scales else key: place
            for key, place in metadata.storage_data.items()
        }
        return metadata

    def _ndim(self, metadata: Metadata, name: str) -> int:
        held = metadata.state_dict_metadata[name]
        return len(held.size) if isinstance(held, TensorStorageMetadata) else 0

    def _part(self, file: Any, item: ReadItem) -> Tensor:
        name = item.storage_index.fqn
        if name not in self._scales:
            return super()._part(file, item)
        weights, scales = file.get_tensor(name), self._tensor_of(file, name, self._scales[name])
        if name.endswith("_blocks"):
            return self._from_fp4(weights, scales, item)
        return self._from_blocks(weights, scales, item)

    def _tensor_of(self, file: Any, name: str, other: str) -> Tensor:
        """A tensor that goes with one of an open file."""
        if self._files[name] == self._files[other]:
            return file.get_tensor(other)
        with safetensors.safe_open(os.path.join(self.path, self._files[other])) as beside:
            return beside.get_tensor(other)

    def _from_blocks(self, weights: Tensor, scales: Tensor, item: ReadItem) -> Tensor:
        """A box of 8-bit weights times the scales of their blocks."""
        if weights.ndim != 2:
            raise ValueError(
                f"{item.storage_index.fqn}: blocks of weights are known of matrices, found {weights.shape}"
            )
        rows, columns = spans(item)
        down = rushlight.arange(rows.start, rows.stop) // self.block_size
        along = rushlight.arange(columns.start, columns.stop) // self.block_size
        found = weights[rows, columns].to(rushlight.float32) * scales.to(rushlight.float32)[down][:, along]
        return found.to(self.target_dtype)

    def _from_fp4(self, weights: Tensor, scales: Tensor, item: ReadItem) -> Tensor:
        """A box of pairs of 4-bit numbers times the powers of two of their groups."""
        *rows, last = spans(item)
        per_group = weights.shape[-1] * 2
        first, beyond = last.start // per_group, -(-last.stop // per_group)
        bytes_, powers = weights[(*rows, slice(first, beyond))], scales[(*rows, slice(first, beyond))]
        table = rushlight.tensor(_FP4, dtype=self.target_dtype)
        numbers = rushlight.stack([table[(bytes_ & 15).long()], table[(bytes_ >> 4).long()]], dim=-1)
        exponents = powers.to(rushlight.int32) - _FP4_BIAS
        scaled = rushlight.ldexp(numbers, exponents[..., None, None])
        begin = last.start - first * per_group
        return scaled.reshape(*scaled.shape[:-3], -1)[..., begin : begin + last.stop - last.start].to(self.target_dtype)
