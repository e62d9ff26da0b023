"""An LSTM over integers: the observed one, each of whose modules was converted."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.ao.nn import quantizable

__all__ = ["LSTM"]


class LSTM(quantizable.LSTM):
    """An LSTM whose products, sums and gates are of integers: what an observed one becomes."""

    _FLOAT_MODULE: Any = quantizable.LSTM

    def _get_name(self) -> str:
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError: floats are observed first."""
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed LSTM module. Please, see the examples on quantizable LSTMs."
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The LSTM of an observed one."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"expected {cls._FLOAT_MODULE}, got {type(other)}")
        made = torch.ao.quantization.convert(other, inplace=False, remove_qconfig=True)
        made.__class__ = cls
        return made
