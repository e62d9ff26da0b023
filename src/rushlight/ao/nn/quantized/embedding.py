"""Embeddings whose rows are bytes or half bytes, with a scale and a zero point for each row."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.operators.namespace import operators as ops

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingPackedParams"]


class EmbeddingPackedParams(nn.Module):
    """The packed rows: their state is the weight."""

    _version = 1

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = torch.quint8) -> None:
        super().__init__()
        self.dtype = dtype
        if dtype not in (torch.quint8, torch.quint4x2):
            raise NotImplementedError(f"Unsupported dtype on dynamic quantized embedding: {dtype}")
        scales, zeros = torch.ones(num_embeddings), torch.zeros(num_embeddings)
        self.set_weight(torch.quantize_per_channel(torch.zeros(num_embeddings, embedding_dim), scales, zeros, 0, dtype))

    def set_weight(self, weight: Any) -> None:
        """Pack another weight."""
        self._packed_weight = ops.embedding_bag_prepack(weight)

    def _weight(self) -> Any:
        return self._packed_weight.unpack()

    def forward(self, x: Any) -> Any:
        """The input: this module holds a state and computes nothing."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"], destination[prefix + "_packed_weight"] = self.dtype, self._weight()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        self.dtype = state_dict.pop(prefix + "dtype")
        self.set_weight(state_dict.pop(prefix + "_packed_weight"))
        super()._load_from_state_dict(state_dict, prefix, more[0], False, *more[2:])

    def __repr__(self) -> str:
        return self._weight().__repr__()


class Embedding(nn.Module):
    """Rows of a quantized weight, by index, in float32."""

    _version, _NAME, _FLOAT = 1, "QuantizedEmbedding", nn.Embedding

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None, dtype: Any = torch.quint8,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.dtype, self.sparse = num_embeddings, embedding_dim, dtype, sparse
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, dtype)
        if _weight is not None:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.set_weight(_weight)

    def forward(self, indices: Any) -> Any:
        """The rows [*, D]."""
        return ops.embedding_byte(self._packed_params._packed_weight, indices)

    def _get_name(self) -> str:
        return self._NAME

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        """Sizes and dtype."""
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, dtype={self._packed_params.dtype}, "
            f"qscheme={self.weight().qscheme()}"
        )

    def set_weight(self, w: Any) -> None:
        """Pack another weight."""
        self._packed_params.set_weight(w)

    def weight(self) -> Any:
        """The weight, quantized."""
        return self._packed_params._weight()

    @classmethod
    def _settings(cls, mod: Any) -> dict[str, Any]:
        return {}

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The embedding of a float module with a qconfig of float scales."""
        observer = getattr(mod, "weight_fake_quant", None)
        if observer is None:
            if getattr(mod, "qconfig", None) is None or mod.qconfig.weight is None:
                observer = torch.ao.quantization.default_float_qparams_observer()
            else:
                observer = mod.qconfig.weight()
        if observer.qscheme != torch.per_channel_affine_float_qparams:
            raise AssertionError(
                "Embedding Bag weights need to be quantized with per_channel_affine_float_qparams qscheme, got "
                + str(observer.qscheme)
            )
        observer(mod.weight.detach())
        scale, zero = observer.calculate_qparams()
        weight = torch.quantize_per_channel(mod.weight.detach().float(), scale, zero, 0, observer.dtype)
        made = cls(mod.num_embeddings, mod.embedding_dim, dtype=observer.dtype, **cls._settings(mod))
        made.set_weight(weight)
        return made

    @classmethod
    def from_reference(cls, ref_embedding: Any) -> Any:
        """The embedding of a reference module."""
        made = cls(
            ref_embedding.num_embeddings, ref_embedding.embedding_dim, dtype=ref_embedding.weight_dtype,
            **cls._settings(ref_embedding),
        )  # fmt: skip
        made.set_weight(ref_embedding.get_quantized_weight())
        return made


class EmbeddingBag(Embedding):
    """Sums of rows of a quantized weight, one for each bag, in float32."""

    _NAME = "QuantizedEmbeddingBag"

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        mode: str = "sum", sparse: bool = False, _weight: Any = None, include_last_offset: bool = False, dtype: Any = torch.quint8,
    ) -> None:  # fmt: skip
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode, self.pruned_weights, self.include_last_offset = mode, False, include_last_offset

    def forward(
        self, indices: Any, offsets: Any = None, per_sample_weights: Any = None, compressed_indices_mapping: Any = None
    ) -> Any:
        """The sums [bags, D]."""
        if self.mode != "sum":
            raise NotImplementedError(f"quantized EmbeddingBag has the mode 'sum' only, got {self.mode!r}")
        return ops.embedding_bag_byte(
            self._packed_params._packed_weight, indices, offsets, False, 0, False, per_sample_weights, compressed_indices_mapping,
            self.include_last_offset,
        )  # fmt: skip

    @classmethod
    def _settings(cls, mod: Any) -> dict[str, Any]:
        return {"mode": mod.mode, "include_last_offset": mod.include_last_offset}
