"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight._surface.functorch.dual_levels import UnpackedDualTensor as UnpackedDualTensor
from rushlight._surface.functorch.dual_levels import dual_level as dual_level
from rushlight._surface.functorch.dual_levels import enter_dual_level as enter_dual_level
from rushlight._surface.functorch.dual_levels import exit_dual_level as exit_dual_level
from rushlight._surface.functorch.dual_levels import make_dual as make_dual
from rushlight._surface.functorch.dual_levels import unpack_dual as unpack_dual
