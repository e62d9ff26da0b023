"""Convolutions by cuDNN: the functions of its version 9 that describe one by descriptors, choose an algorithm and run it.

A convolution, its gradient by the images and that by the weights are one call each, with the same arguments in order: two
operands with descriptors, the convolution, an algorithm, a workspace, a result.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._backends.cuda.libraries.loader import CLibrary, LibraryError, Wheel
from rushlight._base.knobs import Knob

__all__ = ["KINDS", "LIBRARY", "TYPES", "WHEEL", "Algorithm", "CuDnn", "Performance", "cudnn"]

LIBRARY: Knob[str] = Knob(
    "cudnn_library", env="RUSHLIGHT_CUDNN_LIBRARY", kind=str, default="",
    doc="The path of cuDNN; empty: that of NVIDIA's wheel, else none; `none`: none.",
)  # fmt: skip
_OTHERS = (
    ("libnvrtc-builtins.so", "cuda_nvrtc"), ("libnvrtc.so", "cuda_nvrtc"), ("libcublasLt.so", "cublas"), ("libcublas.so", "cublas"),
)  # fmt: skip
WHEEL = Wheel("cuDNN", "libcudnn.so", "cudnn", "cuda", LIBRARY, _OTHERS)

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
ROWS_INNER, CHANNELS_INNER = 0, 1  # CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC
FLIPPED, NOT_FLIPPED = 0, 1  # CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION
DEFAULT_MATH, TENSOR_MATH, EXACT_MATH = 0, 1, 3  # CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_FMA_MATH
DETERMINISTIC = 1
KINDS = {"forward": "Forward", "images": "BackwardData", "weights": "BackwardFilter"}
MOST_WORKSPACE = 256 << 20
_MOST_ALGORITHMS = 8

_P, _I, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cudnnGetVersion": (),
    "cudnnCreate": (_P,),
    "cudnnSetStream": (_P, _P),
    "cudnnCreateTensorDescriptor": (_P,),
    "cudnnSetTensorNdDescriptor": (_P, _I, _I, _P, _P),
    "cudnnCreateFilterDescriptor": (_P,),
    "cudnnSetFilterNdDescriptor": (_P, _I, _I, _I, _P),
    "cudnnCreateConvolutionDescriptor": (_P,),
    "cudnnSetConvolutionNdDescriptor": (_P, _I, _P, _P, _P, _I, _I),
    "cudnnSetConvolutionGroupCount": (_P, _I),
    "cudnnSetConvolutionMathType": (_P, _I),
    **{f"cudnnGetConvolution{kind}Algorithm_v7": (_P, _P, _P, _P, _P, _I, _P, _P) for kind in KINDS.values()},
    **{f"cudnnConvolution{kind}": (_P, _P, _P, _P, _P, _P, _P, _I, _P, _N, _P, _P, _P) for kind in KINDS.values()},
}


class Performance(ctypes.Structure):
    """`cudnnConvolutionFwdAlgoPerf_t`, and those of gradients: an algorithm, and what it needs."""

    _fields_ = (
        ("algorithm", _I),
        ("status", _I),
        ("milliseconds", ctypes.c_float),
        ("workspace", _N),
        ("deterministic", _I),
        ("math", _I),
        ("reserved", _I * 3),
    )


class Algorithm(NamedTuple):
    """One that the library proposes: its number, the bytes of its workspace."""

    number: int
    workspace: int


class CuDnn(CLibrary):
    """The library, with a handle for each device that used it."""

    def __init__(self, library: Any) -> None:
        super().__init__(WHEEL.title, library, _SIGNATURES)
        self._lock = threading.Lock()

    def version(self) -> int:
        """10000 * major + 100 * minor + patch."""
        function = self.function("cudnnGetVersion")
        function.restype = _N
        return int(function())

    def handle(self, device: int) -> ctypes.c_void_p:
        """The handle of a device, which is the current one of this thread."""
        return self.handle_of(device, "cudnnCreate")

    def tensor(self, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> ctypes.c_void_p:
        """The description of an array [N, C, *S]."""
        made = self.made("cudnnCreateTensorDescriptor")
        self.call("cudnnSetTensorNdDescriptor", made, TYPES[dtype], len(shape), _ints(shape), _ints(strides))
        return made

    def filter(self, dtype: str, shape: Sequence[int], channels_inner: bool) -> ctypes.c_void_p:
        """The description of weights [O, C, *K]."""
        made, form = self.made("cudnnCreateFilterDescriptor"), CHANNELS_INNER if channels_inner else ROWS_INNER
        self.call("cudnnSetFilterNdDescriptor", made, TYPES[dtype], form, len(shape), _ints(shape))
        return made

    def convolution(
        self, dtype: str, padding: Sequence[int], stride: Sequence[int], dilation: Sequence[int], flip: bool, groups: int, math: int
    ) -> ctypes.c_void_p:  # fmt: skip
        """The description of a convolution, of whatever is computed of it."""
        made = self.made("cudnnCreateConvolutionDescriptor")
        sums, mode = TYPES["float64" if dtype == "float64" else "float32"], FLIPPED if flip else NOT_FLIPPED
        sizes = (_ints(padding), _ints(stride), _ints(dilation))
        self.call("cudnnSetConvolutionNdDescriptor", made, len(padding), *sizes, mode, sums)
        self.call("cudnnSetConvolutionGroupCount", made, groups)
        self.call("cudnnSetConvolutionMathType", made, math)
        return made

    def algorithms(self, kind: str, device: int, *descriptors: Any, deterministic: bool = False) -> list[Algorithm]:
        """Those that the library has, the one first that it expects to be fastest; `descriptors` are of the two operands, the
        convolution and the result.
        """
        found, count = (Performance * _MOST_ALGORITHMS)(), _I()
        name = f"cudnnGetConvolution{KINDS[kind]}Algorithm_v7"
        with self._lock:
            handle = self.handle(device)
            self.call(name, handle, *descriptors, _MOST_ALGORITHMS, ctypes.byref(count), ctypes.byref(found))
        good = [p for p in found[: count.value] if p.status == 0 and p.workspace <= MOST_WORKSPACE]
        good = [p for p in good if not deterministic or p.deterministic == DETERMINISTIC]
        return [Algorithm(p.algorithm, p.workspace) for p in good]

    @staticmethod
    def name_of(kind: str) -> str:
        """The C function of a kind of convolution."""
        return f"cudnnConvolution{KINDS[kind]}"

    def run(self, kind: str, device: int, stream: int, *arguments: Any) -> None:
        """Give a convolution to a stream."""
        with self._lock:
            handle = self.handle(device)
            self.call("cudnnSetStream", handle, stream)
            self.call(self.name_of(kind), handle, *arguments)


def _ints(values: Sequence[int]) -> Any:
    return (_I * len(values))(*values)


_loaded: list[CuDnn] = []


def cudnn() -> CuDnn:
    """The library, loaded by the first use; MissingExtraError where it is not installed, LibraryError where it is too old."""
    if not _loaded:
        made = CuDnn(WHEEL.open())
        if made.version() < 90000:
            raise LibraryError(f"{WHEEL.path()} is cuDNN {made.version()}: rushlight needs 9.0 or later")
        _loaded.append(made)
    return _loaded[0]
