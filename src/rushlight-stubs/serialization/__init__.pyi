"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.serialization.allowed import add_safe_globals as add_safe_globals
from rushlight.serialization import allowed as allowed
from rushlight.serialization import archive as archive
from rushlight.serialization.allowed import clear_safe_globals as clear_safe_globals
from rushlight.serialization.allowed import get_safe_globals as get_safe_globals
from rushlight.serialization.loading import get_unsafe_globals_in_checkpoint as get_unsafe_globals_in_checkpoint
from rushlight.serialization.loading import load as load
from rushlight.serialization import loading as loading
from rushlight.serialization import memory as memory
from rushlight.serialization import names as names
from rushlight.serialization import rebuild as rebuild
from rushlight.serialization.allowed import safe_globals as safe_globals
from rushlight.serialization.saving import save as save
from rushlight.serialization import saving as saving
from rushlight.serialization import unpickler as unpickler
