"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import int as _int
from types import UnionType as _UnionType

DEFAULT_PROTOCOL: _int
from rushlight.serialization.options import LoadEndianness as LoadEndianness
MAP_LOCATION: _UnionType
from rushlight.serialization.locations import SourceChangeWarning as SourceChangeWarning
from rushlight.serialization.names import StorageType as StorageType
from rushlight.serialization.allowed import add_safe_globals as add_safe_globals
from rushlight.serialization import allowed as allowed
from rushlight.serialization import archive as archive
from rushlight.serialization.locations import check_module_version_greater_or_equal as check_module_version_greater_or_equal
from rushlight.serialization.allowed import clear_safe_globals as clear_safe_globals
from rushlight.serialization.locations import default_restore_location as default_restore_location
from rushlight.serialization.options import get_crc32_options as get_crc32_options
from rushlight.serialization.options import get_default_load_endianness as get_default_load_endianness
from rushlight.serialization.options import get_default_mmap_options as get_default_mmap_options
from rushlight.serialization.allowed import get_safe_globals as get_safe_globals
from rushlight.serialization.loading import get_unsafe_globals_in_checkpoint as get_unsafe_globals_in_checkpoint
from rushlight.serialization import gguf as gguf
from rushlight.serialization import legacy as legacy
from rushlight.serialization.loading import load as load
from rushlight.serialization import loading as loading
from rushlight.serialization.locations import location_tag as location_tag
from rushlight.serialization import locations as locations
from rushlight.serialization import memory as memory
from rushlight.serialization.replacing import mkdtemp as mkdtemp
from rushlight.serialization import names as names
from rushlight.serialization.names import normalize_storage_type as normalize_storage_type
from rushlight.serialization import options as options
from rushlight.serialization import rebuild as rebuild
from rushlight.serialization.locations import register_package as register_package
from rushlight.serialization import replacing as replacing
from rushlight.serialization.allowed import safe_globals as safe_globals
from rushlight.serialization import safetensors as safetensors
from rushlight.serialization.saving import save as save
from rushlight.serialization import saving as saving
from rushlight.serialization.options import set_crc32_options as set_crc32_options
from rushlight.serialization.options import set_default_load_endianness as set_default_load_endianness
from rushlight.serialization.options import set_default_mmap_options as set_default_mmap_options
from rushlight.serialization import sharded as sharded
from rushlight.serialization.options import skip_data as skip_data
from rushlight.serialization.names import storage_to_tensor_type as storage_to_tensor_type
from rushlight.serialization import unpickler as unpickler
from rushlight.serialization.locations import validate_cuda_device as validate_cuda_device
from rushlight.serialization.locations import validate_hpu_device as validate_hpu_device
