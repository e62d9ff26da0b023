"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.ao.nn.intrinsic.fused import BNReLU2d as BNReLU2d
from rushlight.ao.nn.intrinsic.fused import BNReLU3d as BNReLU3d
from rushlight.ao.nn.intrinsic.fused import ConvAdd2d as ConvAdd2d
from rushlight.ao.nn.intrinsic.fused import ConvAddReLU2d as ConvAddReLU2d
from rushlight.ao.nn.intrinsic.fused import ConvBn1d as ConvBn1d
from rushlight.ao.nn.intrinsic.fused import ConvBn2d as ConvBn2d
from rushlight.ao.nn.intrinsic.fused import ConvBn3d as ConvBn3d
from rushlight.ao.nn.intrinsic.fused import ConvBnReLU1d as ConvBnReLU1d
from rushlight.ao.nn.intrinsic.fused import ConvBnReLU2d as ConvBnReLU2d
from rushlight.ao.nn.intrinsic.fused import ConvBnReLU3d as ConvBnReLU3d
from rushlight.ao.nn.intrinsic.fused import ConvReLU1d as ConvReLU1d
from rushlight.ao.nn.intrinsic.fused import ConvReLU2d as ConvReLU2d
from rushlight.ao.nn.intrinsic.fused import ConvReLU3d as ConvReLU3d
from rushlight.ao.nn.intrinsic.fused import LinearBn1d as LinearBn1d
from rushlight.ao.nn.intrinsic.fused import LinearLeakyReLU as LinearLeakyReLU
from rushlight.ao.nn.intrinsic.fused import LinearReLU as LinearReLU
from rushlight.ao.nn.intrinsic.fused import LinearTanh as LinearTanh
from rushlight.ao.nn.intrinsic import fused as fused
from rushlight.ao.nn.intrinsic import qat as qat
from rushlight.ao.nn.intrinsic import quantized as quantized
