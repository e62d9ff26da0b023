"""Contents of `torch.backends.cudnn.rnn`: the settings of cuDNN's recurrent layers, and the state of their dropout."""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight.backends.pages import PrecisionSetting, make_page

__all__ = ["Unserializable", "get_cudnn_mode", "init_dropout_state"]

fp32_precision: str

_MODES = ("RNN_RELU", "RNN_TANH", "LSTM", "GRU")


def get_cudnn_mode(mode: str) -> int:
    """cuDNN's number of a kind of recurrent layer; RuntimeError for others."""
    if mode not in _MODES:
        raise RuntimeError(f"Unknown mode: {mode}")
    return _MODES.index(mode)


class Unserializable:
    """Holds what must not be saved: of a saved one only a mark is left."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def get(self) -> Any:
        """The value it holds; None in one that was saved."""
        return self.inner

    def __getstate__(self) -> str:
        return "<unserializable>"

    def __setstate__(self, state: Any) -> None:
        self.inner = None


def init_dropout_state(dropout: float, train: bool, dropout_seed: int, dropout_state: Any) -> NoReturn:
    """NotImplementedError: cuDNN's state of dropout lives on a GPU."""
    raise NotImplementedError("init_dropout_state: the state of cuDNN's dropout lives on a GPU, and rushlight has none")


make_page(__name__, fp32_precision=PrecisionSetting("cuda", "rnn"))
