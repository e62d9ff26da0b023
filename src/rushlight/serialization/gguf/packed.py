"""Weights that stay packed while a model runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import BLOCK_TYPES, function_of
from rushlight.nn import Embedding, Linear, Module, Parameter
from rushlight.serialization.gguf.block_types import table_of

__all__ = ["PackedEmbedding", "PackedLinear", "PackedWeight", "load_packed"]

_numbers, _linear = function_of("gguf_numbers"), function_of("gguf_linear")


class PackedWeight:
    """Numbers in blocks: `blocks` are bytes [*, B, bytes] of the type `kind`, for numbers of the shape `shape`."""

    def __init__(self, blocks: Tensor, kind: str) -> None:
        form = BLOCK_TYPES.get(kind)
        if form is None:
            raise NotImplementedError(f"blocks of type {kind} cannot be decoded: they hold sums in progress")
        if blocks.dtype is not rushlight.uint8 or blocks.ndim < 2 or blocks.shape[-1] != form.nbytes:
            raise ValueError(
                f"blocks of {kind} are uint8 [*, B, {form.nbytes}], got {blocks.dtype} {list(blocks.shape)}"
            )
        self.blocks, self.kind = blocks, kind

    @property
    def shape(self) -> rushlight.Size:
        """The shape of the numbers."""
        return rushlight.Size((*self.blocks.shape[:-2], self.blocks.shape[-2] * BLOCK_TYPES[self.kind].numbers))

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return int(self.blocks.nbytes)

    def dequantize(self) -> Tensor:
        """The numbers in float32, exactly as the reference decoder gives them."""
        return _numbers(self.blocks, table_of(self.kind), kind=self.kind)

    def __repr__(self) -> str:
        return f"PackedWeight({self.kind}, {list(self.shape)}, {self.nbytes} bytes)"


class _Packed(Module):
    def __init__(self, weight: PackedWeight) -> None:
        super().__init__()
        if len(weight.shape) != 2:
            raise ValueError(f"a packed weight of a layer has two dims, got {list(weight.shape)}")
        self.kind = weight.kind
        self.register_buffer("blocks", weight.blocks)

    @property
    def weight(self) -> Tensor:
        """The numbers in float32: a new tensor at each look."""
        return PackedWeight(self.blocks, self.kind).dequantize()


class PackedLinear(_Packed):
    """`Linear` whose weight [out_features, in_features] stays packed: input [*, in_features] to [*, out_features].

    The input may want a gradient (as adapters do); the weight has none.
    """

    def __init__(self, weight: PackedWeight, bias: Tensor | None = None) -> None:
        super().__init__(weight)
        self.out_features, self.in_features = weight.shape
        self.bias = None if bias is None else Parameter(bias.detach().clone().float(), requires_grad=False)

    def forward(self, input: Tensor) -> Tensor:
        """Multiply in float32; the result has the input's dtype."""
        y = _linear(input.float(), self.blocks, table_of(self.kind), kind=self.kind)
        y = y if self.bias is None else y + self.bias
        return y.to(input.dtype)

    def extra_repr(self) -> str:
        """Sizes and type."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, kind={self.kind}"


class PackedEmbedding(_Packed):
    """`Embedding` whose weight [num_embeddings, embedding_dim] stays packed: only rows that are asked for are decoded."""

    def __init__(self, weight: PackedWeight) -> None:
        super().__init__(weight)
        self.num_embeddings, self.embedding_dim = weight.shape

    def forward(self, input: Tensor) -> Tensor:
        """Rows for indices, in float32."""
        rows = self.blocks[input]
        return _numbers(rows, table_of(self.kind), kind=self.kind)

    def extra_repr(self) -> str:
        """Sizes and type."""
        return f"{self.num_embeddings}, {self.embedding_dim}, kind={self.kind}"


def load_packed(model: Module, tensors: Mapping[str, Any]) -> Module:
    """Load tensors by the names of a model's parameters, and keep packed weights of `Linear` and `Embedding` packed.

    Layers whose weight is a `PackedWeight` are replaced in place.  Packed tensors of other layers are decoded.  ValueError names
    tensors that are missing, unknown or of another shape, before anything is changed.
    """
    wanted = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    unknown = sorted(tensors.keys() - wanted.keys())
    missing = sorted(wanted.keys() & model.state_dict().keys() - tensors.keys())
    shapes = [
        f"{name}: {list(tensors[name].shape)} for {list(wanted[name].shape)}"
        for name in sorted(tensors.keys() & wanted.keys())
        if tuple(tensors[name].shape) != tuple(wanted[name].shape)
    ]
    if unknown or missing or shapes:
        raise ValueError(f"tensors do not fit the model: missing {missing}, unknown {unknown}, other shapes {shapes}")
    plain: dict[str, Tensor] = {}
    replaced: dict[str, Module] = {}
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, value in tensors.items():
        owner, _, attribute = name.rpartition(".")
        layer = modules[owner]
        if isinstance(value, PackedWeight) and attribute == "weight" and type(layer) in (Linear, Embedding) and owner:
            bias = tensors.get(f"{owner}.bias")
            bias = bias.dequantize() if isinstance(bias, PackedWeight) else bias
            replaced[owner] = PackedLinear(value, bias) if type(layer) is Linear else PackedEmbedding(value)
        else:
            plain[name] = value.dequantize() if isinstance(value, PackedWeight) else value
    model.load_state_dict({k: v for k, v in plain.items() if k.rpartition(".")[0] not in replaced}, strict=False)
    for owner, layer in replaced.items():
        above, _, attribute = owner.rpartition(".")
        setattr(modules[above], attribute, layer)
    return model
