"""Calls of the elementwise operators."""

from __future__ import annotations

from rushlight._ops.samples import Call, Draw, give
from rushlight._types.dtype import BOOL, COMPLEX128, FLOAT32, INT32, INT64

__all__: list[str] = []

# ***** one number: the range in which the function is defined, and where its slope is moderate *****

_RANGES = {
    "exp": (-2, 2), "exp2": (-2, 2), "expm1": (-2, 2), "log": (0.1, 4), "log2": (0.1, 4), "log10": (0.1, 4), "log1p": (-0.8, 3),
    "sqrt": (0.1, 4), "rsqrt": (0.2, 4), "square": (-2, 2), "reciprocal": (0.3, 3), "sin": (-3, 3), "cos": (-3, 3), "tan": (-1.2, 1.2),
    "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atan": (-3, 3), "sinh": (-2, 2), "cosh": (-2, 2), "tanh": (-2, 2), "asinh": (-3, 3),
    "acosh": (1.2, 4), "atanh": (-0.9, 0.9), "sinc": (-2, 2), "deg2rad": (-90, 90), "rad2deg": (-2, 2), "erf": (-2, 2), "erfc": (-2, 2),
    "erfinv": (-0.9, 0.9), "lgamma": (0.3, 4), "digamma": (0.5, 4), "sigmoid": (-4, 4), "floor": (-3, 3), "ceil": (-3, 3),
    "trunc": (-3, 3), "frac": (-3, 3), "abs": (-2, 2), "neg": (-2, 2), "sign": (-2, 2), "sgn": (-2, 2), "signbit": (-2, 2),
    "isnan": (-2, 2), "isinf": (-2, 2), "isfinite": (-2, 2), "isreal": (-2, 2), "isposinf": (-2, 2), "isneginf": (-2, 2),
    "angle": (-2, 2), "conj_physical": (-2, 2), "relu": (-2, 2), "relu6": (-3, 9), "hardswish": (-5, 5), "hardsigmoid": (-5, 5),
    "silu": (-4, 4), "mish": (-4, 4), "selu": (-3, 3), "logsigmoid": (-4, 4), "softsign": (-3, 3), "tanhshrink": (-3, 3),
    "logical_not": (-2, 2),
}  # fmt: skip

for _name, (_low, _high) in _RANGES.items():
    give(
        _name,
        Call(Draw(3, 4, low=_low, high=_high)),
        Call(Draw(low=_low, high=_high)),
        Call(Draw(0, 2, low=_low, high=_high)),
    )

for _name in ("exp", "log", "sin", "sqrt", "tanh", "sigmoid", "reciprocal", "abs", "neg", "square"):
    _low, _high = _RANGES[_name]
    give(_name, Call(Draw(3, 4, low=_low, high=_high)), Call(Draw(low=_low, high=_high)),
         Call(Draw(5, dtype=COMPLEX128, low=max(_low, 0.1), high=_high)))  # fmt: skip

X = Draw(3, 4)
ROW = Draw(4)
POSITIVE = Draw(3, 4, low=0.2, high=3.0)
give("logit", Call(Draw(3, 4, low=0.05, high=0.95)), Call(Draw(5, low=-0.4, high=1.4), 0.1))
give("round", Call(X), Call(Draw(5, low=-30, high=30), decimals=-1), Call(Draw(4, dtype=INT64, low=-9, high=9)))
give("nan_to_num", Call(Draw(4, values=[float("nan"), float("inf"), -float("inf"), 1.5])), Call(X, 1.0, 2.0, -2.0))
give("complex", Call(X, ROW))
give("polar", Call(POSITIVE, ROW))
give("threshold", Call(X, 0.13, -1.0))
give("bitwise_not", Call(Draw(4, dtype=INT64)), Call(Draw(4, dtype=BOOL)))

# ***** two numbers *****

for _name in (
    "add",
    "sub",
    "rsub",
    "mul",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "hypot",
    "logaddexp",
    "logaddexp2",
):
    give(_name, Call(X, Draw(3, 4)), Call(X, ROW), Call(Draw(3, 1), Draw()), Call(Draw(0, 4), ROW))
give(
    "add",
    Call(X, ROW, alpha=2.5),
    Call(X, 3),
    Call(Draw(4, dtype=BOOL), Draw(4, dtype=BOOL)),
    Call(Draw(3, dtype=INT32), Draw(3)),
)
give("sub", Call(X, ROW, alpha=2.5), Call(X, 3.5), Call(X, Draw(3, 4)))
give(
    "mul",
    Call(X, ROW),
    Call(X, 2),
    Call(Draw(3, dtype=COMPLEX128), Draw(3)),
    Call(Draw(4, dtype=BOOL), Draw(4, dtype=BOOL)),
)
give("rsub", Call(X, 1.0), Call(X, ROW, alpha=2))
give("div", Call(X, POSITIVE), Call(X, 2.0), Call(Draw(6, low=-9, high=9), Draw(6, low=1, high=4), rounding_mode="floor"),
     Call(Draw(6, dtype=INT64, low=-9, high=9), Draw(6, dtype=INT64, low=1, high=4), rounding_mode="trunc"))  # fmt: skip
give("true_divide", Call(X, POSITIVE), Call(Draw(4, dtype=INT64, low=1, high=9), 4))
give("floor_divide", Call(Draw(6, dtype=INT64, low=-9, high=9), Draw(6, dtype=INT64, low=1, high=4)), Call(X, POSITIVE))
for _name in ("remainder", "fmod"):
    give(_name, Call(Draw(6, low=-9, high=9), Draw(6, low=1, high=3)), Call(Draw(6, low=-9, high=9), 2.5),
         Call(Draw(6, dtype=INT64, low=-9, high=9), Draw(6, dtype=INT64, low=1, high=4)))  # fmt: skip
give(
    "pow",
    Call(POSITIVE, ROW),
    Call(X, 2),
    Call(X, 3.0),
    Call(POSITIVE, 0.5),
    Call(POSITIVE, -1.5),
    Call(2.0, X),
    Call(Draw(3, dtype=INT64), 2),
)
give("float_power", Call(Draw(3, dtype=FLOAT32, low=0.5, high=2.0), 2), Call(POSITIVE, ROW))
give("copysign", Call(X, ROW), Call(X, -1.0))
give("nextafter", Call(X, ROW))
give("xlogy", Call(X, POSITIVE), Call(X, 2.0))
give("special_xlog1py", Call(X, POSITIVE))
give("ldexp", Call(X, Draw(4, dtype=INT64, low=-3, high=3)))
give("lerp", Call(X, Draw(3, 4), 0.3), Call(X, Draw(3, 4), 0.75), Call(X, ROW, Draw(3, 4, low=0, high=1)))
for _name in ("addcmul", "addcdiv"):
    give(_name, Call(X, ROW, POSITIVE), Call(X, ROW, POSITIVE, value=0.5))
give("heaviside", Call(X, ROW))
give("gcd", Call(Draw(6, dtype=INT64, low=-60, high=60), Draw(6, dtype=INT64, low=-60, high=60)))
give("lcm", Call(Draw(6, dtype=INT64, low=-20, high=20), Draw(6, dtype=INT64, low=-20, high=20)))
give("running_average", Call(ROW, Draw(4), 0.1))

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    give(_name, Call(X, Draw(3, 4)), Call(Draw(4, dtype=INT64), Draw(4, dtype=INT64)), Call(X, 0.25))
give("isclose", Call(X, Draw(3, 4), 0.5, 0.1), Call(Draw(4, dtype=INT64), Draw(4, dtype=INT64)))
for _name in ("logical_and", "logical_or", "logical_xor"):
    give(_name, Call(Draw(4, dtype=INT64), Draw(4, dtype=BOOL)), Call(X, ROW))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    give(
        _name,
        Call(Draw(4, dtype=INT64, low=0, high=30), Draw(4, dtype=INT64, low=0, high=30)),
        Call(Draw(4, dtype=BOOL), Draw(4, dtype=BOOL)),
    )
for _name in ("bitwise_left_shift", "bitwise_right_shift"):
    give(
        _name,
        Call(Draw(6, dtype=INT64, low=-40, high=40), Draw(6, dtype=INT64, low=0, high=5)),
        Call(Draw(3, dtype=INT32), 70),
    )
give(
    "where",
    Call(Draw(3, 4, dtype=BOOL), X, ROW),
    Call(Draw(3, 4, dtype=BOOL), X, 0.0),
    Call(Draw(3, dtype=BOOL), 1, 2.0),
)
give("masked_fill", Call(X, Draw(4, dtype=BOOL), 2.0), Call(X, Draw(3, 4, dtype=BOOL), Draw()))
give("clamp", Call(X, -0.5, 0.7), Call(X, None, 0.3), Call(X, ROW, Draw(3, 4, low=0, high=3)), Call(X, 1.0, -1.0))
give("clamp_min", Call(X, 0.1), Call(X, ROW))
give("clamp_max", Call(X, 0.1), Call(X, ROW))

# ***** activations with arguments *****

give("hardtanh", Call(X), Call(X, -0.5, 0.7))
give("leaky_relu", Call(X), Call(X, 0.3))
give("prelu", Call(X, Draw(1)), Call(Draw(2, 3, 4), Draw(3)))
give("hardshrink", Call(X), Call(X, 1.1))
give("softshrink", Call(X), Call(X, 1.1))
give("gelu", Call(X), Call(X, approximate="tanh"))
give("elu", Call(X), Call(X, 0.6))
give("celu", Call(X), Call(X, 0.6))
give("softplus", Call(X), Call(Draw(6, low=-20, high=30), 2.0, 15.0))
give("glu", Call(X), Call(Draw(2, 4, 3), 1))

# ***** special functions *****

for _name in (
    "i0",
    "special_i0e",
    "special_i1",
    "special_i1e",
    "special_modified_bessel_i0",
    "special_modified_bessel_i1",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_spherical_bessel_j0",
    "special_erfcx",
    "special_ndtr",
    "special_log_ndtr",
):
    give(_name, Call(Draw(12, low=-5, high=12)))
for _name in (
    "special_bessel_y0",
    "special_bessel_y1",
    "special_modified_bessel_k0",
    "special_modified_bessel_k1",
    "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1",
):
    give(_name, Call(Draw(12, low=0.3, high=12)))
give("special_airy_ai", Call(Draw(12, low=-9, high=4)))
give("special_ndtri", Call(Draw(8, low=0.02, high=0.98)))
give("special_entr", Call(Draw(8, low=0.1, high=3)))
give("special_zeta", Call(Draw(6, low=1.5, high=4), Draw(6, low=0.3, high=5)))
for _name in ("igamma", "igammac"):
    give(_name, Call(Draw(9, low=0.3, high=6), Draw(9, low=0.2, high=9)))
give("frexp", Call(Draw(3, 4, low=-9, high=9)))
for _name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
    give(f"special_{_name}", Call(Draw(6, low=-1.8, high=1.8), Draw(6, dtype=INT64, low=-1, high=7)))
give("polygamma", *[Call(n, Draw(5, low=0.5, high=4)) for n in (0, 1, 2, 3)])
give("mvlgamma", Call(Draw(5, low=2, high=5), 3))
for _letter in "tuvw":
    for _prefix in ("", "shifted_"):
        give(
            f"special_{_prefix}chebyshev_polynomial_{_letter}",
            Call(Draw(6, low=-1.8, high=1.8), Draw(6, dtype=INT64, low=-1, high=7)),
        )

# ***** fake quantization *****

_WIDE = Draw(3, 4, low=-2.0, high=2.0)
give("fake_quantize_per_tensor_affine", Call(_WIDE, 0.13, 3, 0, 15), Call(Draw(0, 2), 0.1, 0, -8, 7),
     Call(_WIDE, Draw(1, dtype=FLOAT32, low=0.1, high=0.2), Draw(1, dtype=INT32, low=2, high=3), 0, 15))  # fmt: skip
give(
    "fake_quantize_per_channel_affine",
    Call(_WIDE, Draw(3, dtype=FLOAT32, low=0.1, high=0.2), Draw(3, dtype=INT32, low=2, high=5), 0, 0, 15),
)
