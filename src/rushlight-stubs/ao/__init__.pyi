"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.ao import nn as nn
from rushlight.ao import ns as ns
from rushlight.ao import operators as operators
from rushlight.ao import pruning as pruning
from rushlight.ao import quantization as quantization
