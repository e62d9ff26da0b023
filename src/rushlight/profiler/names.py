"""Names of calls in a profile: the name that PyTorch's dispatcher has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["event_name"]

# Operators of ours under another name than that of PyTorch's operator which does the same.
_NAMES = {
    "batch_norm_eval": "batch_norm", "batch_norm_train": "batch_norm", "clone_channels_last": "clone",
    "clone_contiguous": "clone", "cross_entropy": "cross_entropy_loss", "dropout_core": "native_dropout", "layer_norm": "layer_norm",
    "logsigmoid": "log_sigmoid", "max_all": "max", "max_dim": "max", "median_all": "median", "nanmedian_all": "nanmedian", "median_dim": "median", "min_all": "min",
    "min_dim": "min", "nll_loss": "nll_loss_nd", "max_pool2d_values": "max_pool2d_with_indices",
    "running_average_": "rushlight::running_average_", "sdpa_core": "_scaled_dot_product_flash_attention_for_cpu", "to_dtype": "_to_copy",
}  # fmt: skip
_STEPS = {"s": "slice", "i": "select", "n": "unsqueeze"}


def event_name(name: str, given: Callable[[], list[tuple[str, Any]]]) -> str:
    """The name in profiles of an operator of ours."""
    if name == "basic_index":
        return "aten::" + _index_name(given())
    known = _NAMES.get(name)
    if known is not None:
        return known if "::" in known else "aten::" + known
    if name.endswith("_core"):
        return "aten::" + name.removesuffix("_core")
    return "aten::" + name


def _index_name(given: list[tuple[str, Any]]) -> str:
    """`x[1]` is a select, `x[1:]` a slice, `x[None]` an unsqueeze; of several steps the first that does something
    counts.
    """
    steps = given[1][1]
    for step in steps:
        if step[0] != "s" or step[1:3] != (None, None) or step[3:] not in ((1,), (None,)):
            return _STEPS.get(step[0], "as_strided")
    return "slice" if steps else "alias"
