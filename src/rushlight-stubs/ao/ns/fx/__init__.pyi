"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.ao.ns.fx import utils as utils
