"""The precision inside of float32 operations that programs allow, by library and kind of operation, and which libraries they
ask for.

>>> from rushlight._backends.precision import FP32_PRECISION
>>> FP32_PRECISION.allowed("cuda", "matmul")
'none'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["DETERMINISTIC", "FP32_PRECISION", "LIBRARIES"]

# Whether a program asks for the same bits on every run (`torch.use_deterministic_algorithms`): of libraries nobody knows.
DETERMINISTIC = [False]

Key = tuple[str, str]  # a library and a kind of operation, or "all"
# Its last item, a number, says what is allowed on GPUs: what was compiled is used while it is the same.
_STATE = [0]
_WORDS = ("none", "ieee", "tf32", "bf16")


class _Precisions(dict[Key, str]):
    """Words by library and kind; `changed` are called when one changes, `told` are those that a program has set."""

    def __init__(self, begin: Mapping[Key, str]) -> None:
        super().__init__(begin)
        self.told: set[Key] = set()
        self.matmul = "highest"  # what `torch.set_float32_matmul_precision` was told
        self.changed: list[Callable[[], None]] = []
        self.state = _STATE

    def __setitem__(self, key: Key, word: str) -> None:
        super().__setitem__(key, word)
        self.told.add(key)
        self.state[-1] = sum(
            _WORDS.index(self.allowed("cuda", kind)) << 2 * place
            for place, kind in enumerate(("matmul", "conv", "rnn"))
        )
        for function in self.changed:
            function()

    def allowed(self, library: str, operation: str) -> str:
        """The precision that a program allows, "none" where it has set nothing: defaults count for what is shown alone."""
        for key in ((library, operation), (library, "all"), ("generic", "all")):
            if key in self.told and self.get(key, "none") != "none":
                return self[key]
        return "none"


FP32_PRECISION = _Precisions({("cuda", "conv"): "tf32", ("cuda", "rnn"): "tf32"})


class _Libraries:
    """Settings of a process; `changed` are called when `set` changes one, because plans depend on them."""

    def __init__(self) -> None:
        self.linalg = "default"  # `torch.backends.cuda.preferred_linalg_library`: or cusolver, magma
        self.cudnn = True  # `torch.backends.cudnn.enabled`
        self.cudnn_benchmark = False
        self.cudnn_deterministic = False
        self.changed: list[Callable[[], None]] = []

    def set(self, name: str, value: Any) -> None:
        """Change one."""
        if getattr(self, name) != value:
            setattr(self, name, value)
            for function in self.changed:
                function()


LIBRARIES = _Libraries()
