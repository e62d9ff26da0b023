"""Functions of neural networks: activations, normalisation, losses, pooling, attention.

The page is filled by use. A name is looked for in three places: functions that give an operator PyTorch's Python
signature (`inplace=`, old arguments), the operator table itself, and composites, which are plain Python over tensors.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from rushlight._interface.base import import_whole, no_name, shorten
from rushlight._interface.operators import SPACES, asking

# Which file under `composites` writes which functions. Those of the first table stand before operators of the same
# name, because they call them; those of the second only count where no operator has the name.
_BEFORE_OPERATORS: dict[str, tuple[str, ...]] = {
    "softmax": ("log_softmax", "softmax", "softmin"),
    "lookup": ("embedding",),
    "losses": ("gaussian_nll_loss", "kl_div", "triplet_margin_with_distance_loss"),
}
_AFTER_OPERATORS: dict[str, tuple[str, ...]] = {
    "attention": ("multi_head_attention_forward",),
    "grouped": ("ScalingType", "SwizzleType", "grouped_mm", "scaled_grouped_mm", "scaled_mm"),
    "linear_loss": ("linear_cross_entropy",),
    "normalization": ("batch_norm", "instance_norm"),
    "ctc": ("ctc_loss",),
    "bags": ("embedding_bag",),
    "encoding": ("one_hot",),
    "resizing": ("interpolate", "upsample", "upsample_bilinear", "upsample_nearest"),
    "unpooling": ("max_unpool1d", "max_unpool2d", "max_unpool3d"),
}

# Names of other pages, and helpers of attention, that copies of PyTorch's modules take from here.
_ELSEWHERE: dict[str, tuple[str, str]] = {
    "_canonical_mask": ("nn.composites.attention", "canonical_mask"),
    "_in_projection_packed": ("nn.composites.attention", "_project"),
    "_mha_shape_check": ("nn.composites.attention", "_check_shapes"),
    "_none_or_dtype": ("nn.composites.attention", "_dtype_of"),
    **{name: ("nn.modules.utils", name) for name in ("_list_with_default", "_pair", "_single", "_triple")},
    **{
        name: ("overrides", name)
        for name in (
            "handle_torch_function",
            "has_torch_function",
            "has_torch_function_unary",
            "has_torch_function_variadic",
        )
    },
}

# Of those that only choose an operator, the arguments: the operator's plan is kept as theirs.
_CHOOSING = dict.fromkeys(_BEFORE_OPERATORS["softmax"], ("input", "dim", "_stacklevel", "dtype"))


def _places(table: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: file for file, names in table.items() for name in names}


_FIRST = _places(_BEFORE_OPERATORS)
_LAST = _places(_AFTER_OPERATORS)


def __getattr__(name: str) -> Any:
    try:
        if name == "__all__":  # for `from torch.nn.functional import *`
            return sorted({n for n in (*_FIRST, *_LAST, *SPACES["nn.functional"]) if not n.startswith("_")})
        if name.startswith("__"):
            raise AttributeError(name)
        value: Any = None
        if name in _ELSEWHERE:
            file, there = _ELSEWHERE[name]
            value = globals()[name] = getattr(import_whole(f"rushlight.{file}"), there)
            return value
        if name not in _FIRST:
            value = SPACES["nn.functional"].get(name)
        if value is None:
            place = _FIRST.get(name) or _LAST.get(name)
            if place is None:
                raise no_name(__name__, name)
            value = getattr(import_whole(f"rushlight.nn.composites.{place}"), name)
            if isinstance(value, FunctionType):
                value = value if hasattr(value, "shown") else asking(value, _CHOOSING.get(name, ()))
                value.__module__ = __name__  # where pickle finds it
        globals()[name] = value
        return value
    except BaseException as error:
        shorten(error)
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *_FIRST, *_LAST, *SPACES["nn.functional"]})
