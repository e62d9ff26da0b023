"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.utils import checkpoint as checkpoint
from rushlight.utils import data as data
from rushlight.utils import dlpack as dlpack
from rushlight.utils import hooks as hooks
