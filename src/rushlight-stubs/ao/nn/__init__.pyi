"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.ao.nn import intrinsic as intrinsic
from rushlight.ao.nn import qat as qat
from rushlight.ao.nn import quantizable as quantizable
from rushlight.ao.nn import quantized as quantized
