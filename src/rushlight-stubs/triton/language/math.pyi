"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.triton._semantics.mathematics import abs as abs
from rushlight.triton._semantics.mathematics import ceil as ceil
from rushlight.triton._semantics.mathematics import cos as cos
from rushlight.triton._semantics.mathematics import div_rn as div_rn
from rushlight.triton._semantics.mathematics import erf as erf
from rushlight.triton._semantics.mathematics import exp as exp
from rushlight.triton._semantics.mathematics import exp2 as exp2
from rushlight.triton._semantics.mathematics import fdiv as fdiv
from rushlight.triton._semantics.mathematics import floor as floor
from rushlight.triton._semantics.mathematics import fma as fma
from rushlight.triton._semantics.mathematics import log as log
from rushlight.triton._semantics.mathematics import log2 as log2
from rushlight.triton._semantics.mathematics import rsqrt as rsqrt
from rushlight.triton._semantics.mathematics import sin as sin
from rushlight.triton._semantics.mathematics import sqrt as sqrt
from rushlight.triton._semantics.mathematics import sqrt_rn as sqrt_rn
from rushlight.triton._semantics.mathematics import umulhi as umulhi
