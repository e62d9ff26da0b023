"""How tensors are printed, as `torch._tensor_str`: the options in force, and the text of a tensor's elements."""

from rushlight._surface.tensor_text import (
    PRINT_OPTS,
    _str,
    _tensor_str,
    get_printoptions,
    printoptions,
    set_printoptions,
)

__all__ = ["PRINT_OPTS", "_str", "_tensor_str", "get_printoptions", "printoptions", "set_printoptions"]
