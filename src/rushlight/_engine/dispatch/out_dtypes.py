"""Whether a result fits the dtype of the tensor given as `out=`, and each operator's words where it does not."""

from __future__ import annotations

from typing import Any

from rushlight._ops.bodies import C_NAME
from rushlight._types.dtype import DType
from rushlight._types.promotion import can_cast

__all__ = ["check_asked_dtype", "check_out_dtype"]

_JOINED = "cat column_stack dstack hstack stack vstack"
_ELEMENTWISE = "abs bitwise_not ceil conj_physical fix floor frac gelu hardshrink neg negative round sgn sign softplus softshrink trunc"
_COMPLEX_FFT = "fft ifft rfft ihfft fftn rfftn ihfftn"
_REAL_FFT = "irfft hfft irfftn hfftn"


def _for_each(names: str, words: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), words)


def _safely(operator: str, *results: str) -> tuple[str, ...]:
    return tuple(
        f"{operator}: Expected {result} to be safely castable from {{want}} dtype, but got {result} with dtype {{got}}"
        for result in results or ("result",)
    )


# Words of operators whose result must have exactly the dtype of `out`, by name; several where results differ.
# {want} and {got} are names of dtypes in messages ("Float"), {c_want} and {c_got} those of C++ ("float").
_DEFAULT = "Expected out tensor to have dtype {c_want}, but got {c_got} instead"
_EXACT: dict[str, str | tuple[str, ...]] = {
    **_for_each(_ELEMENTWISE, "Found dtype {got} but expected {want}"),
    **_for_each("isneginf isposinf signbit", "{name} does not support non-boolean outputs."),
    **_for_each("dot vdot", "result dtype {got} does not match input dtype {want}"),
    **_for_each("complex polar", "Expected object of scalar type {want} but got scalar type {got} for argument 'out'"),
    **_for_each("cummax cummin logcumsumexp", "expected scalar_type {want} but found {got}"),
    **_for_each("index_select masked_select", "{name}(): self and result must have the same scalar type"),
    **_for_each("inner tensordot", "tensordot: Expected the output tensor to have dtype {want}, but got an output tensor with dtype {got}"),
    **_for_each("quantile nanquantile", "quantile() out tensor must be same dtype as the input tensor"),
    **_for_each("searchsorted bucketize", (
        "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) depending on whether out_int32 flag is True, "
        "but we got output tensor's dtype {got} and out_int32 flag is {int32}"
    )),
    **_for_each("histc histogram", "torch.histogram: input tensor and hist tensor should have the same dtype, but got input {c_want} and hist {c_got}"),
    **_for_each("solve_triangular log_sigmoid logsigmoid", "expected scalar type {want} but found {got}"),
    **_for_each("linalg_norm linalg_matrix_norm", "linalg.{short} expected out tensor dtype {want} but got: {got}"),
    **_for_each("median nanmedian", (
        ("Expected tensor for 'values' to have the same type as tensor for argument #2 'self'; but type torch.{got}Tensor does not equal "
         "torch.{want}Tensor (while checking arguments for median)"),
        "Expected tensor for argument #1 'indices' to have scalar type Long; but got torch.{got}Tensor instead (while checking arguments for median)",
    )),
    "_int_mm": "int_mm_out_cpu: Expected result dtype to be of type kInt but got {c_got}",
    "addbmm": "self and mat2 must have the same dtype, but got {got} and {want}",
    "amax": "Expected the dtype for input and out to match, but got {want} for input's dtype and {got} for out's dtype.",
    "amin": "Expected the dtype for input and out to match, but got {want} for input's dtype and {got} for out's dtype.",
    "frexp": (
        "torch.frexp() expects mantissa to have dtype {c_want} but got {c_got}", "torch.frexp() expects exponent to have int dtype but got {c_got}",
    ),
    "float_power": "the output given to float_power has dtype {got} but the operation's result requires dtype {want}",
    "heaviside": "heaviside is not yet implemented for tensors with different dtypes.",
    "kthvalue": ("output values must be of same type as input", "output indices must be of scalar type Long"),
    "linalg_multi_dot": "multi_dot(): expected out tensor to have dtype {c_want} but got {c_got}",
    "linalg_vecdot": "linalg.vecdot: Expected out of dtype{want} but found {got}",
    "mode": (
        "expected scalar type '{want}' but got '{got}' for values output", "expected scalar type '{want}' but got '{got}' for indices output",
    ),
    "mv": "addmv input tensors must have the same dtype, but got {got}, {want}, and {want}",
    "nan_to_num": "nan_to_num: dtype of out: {got} should be same as input: {want}",
    "ormqr": "torch.ormqr: Expected input and result to have the same dtype, but input has dtype{want} and result has dtype {got}",
    "take": "take(): self and out expected to have the same dtype, but got self.dtype = {want} and out.dtype = {got}",
    "where": "Expected out type to be {want} but got {got}",
}  # fmt: skip
# Words of operators whose result is cast, where it may not be.
_CAST: dict[str, str | tuple[str, ...]] = {
    **_for_each(_JOINED, "torch.cat(): input types can't be cast to the desired output type {got}"),
    **_for_each(_COMPLEX_FFT, "{name} expects a complex output tensor, but got {got}"),
    **_for_each(_REAL_FFT, "{name} expects a floating point output tensor, but got {got}"),
    **{name: _safely(name) for name in ("cholesky", "cholesky_inverse", "cholesky_solve", "matrix_power")},
    "geqrf": _safely("torch.geqrf", "a", "tau"),
    "householder_product": _safely("torch.linalg.householder_product"),
    "ldexp": "ldexp can't be cast to the desired output type {got}",
    "linalg_cond": _safely("linalg.cond"),
    "linalg_eig": _safely("torch.linalg.eig", "eigenvalues", "eigenvectors"),
    "linalg_eigvals": _safely("torch.linalg.eigvals", "eigenvalues"),
    "linalg_lstsq": _safely("torch.linalg.lstsq", "solution"),
    "linalg_matrix_rank": _safely("torch.linalg.matrix_rank"),
    "linalg_pinv": _safely("linalg.pinv"),
    "linalg_tensorinv": _safely("tensorinv"),
    "linalg_tensorsolve": _safely("tensorsolve"),
    "logsumexp": "logsumexp(): Expected floating point type for result tensor, but got: {got}",
}


def check_out_dtype(name: str, out: DType, dtype: DType, exact: bool = False, place: int = 0) -> None:
    """RuntimeError (TypeError of functions that join) where a result may not go into a tensor of the dtype `out`: it
    is another dtype where `exact`, or one that the result may not be cast to.  `place` is the number of the result.
    """
    if out is dtype or not (exact or name in _REAL_FFT.split() and out.is_complex) and can_cast(dtype, out):
        return
    default = _DEFAULT if exact else "result type {want} can't be cast to the desired output type {got}"
    words = (_EXACT if exact else _CAST).get(name, default)
    if isinstance(words, tuple):
        words = words[min(place, len(words) - 1)]
    kind = TypeError if name in _JOINED.split() else RuntimeError
    c_want, c_got = C_NAME.get(dtype.name, dtype.name), C_NAME.get(out.name, out.name)
    short = name.removeprefix("linalg_")
    int32 = dtype.name == "int32"
    raise kind(
        words.format(name=name, short=short, want=dtype.scalar, got=out.scalar, c_want=c_want, c_got=c_got, int32=int32)
    )


def check_asked_dtype(asked: DType | None, out: DType) -> None:
    """RuntimeError where the argument `dtype` is not the dtype of the tensor that is written to."""
    if asked is not None:
        check_out_dtype("", out, asked, exact=True)
