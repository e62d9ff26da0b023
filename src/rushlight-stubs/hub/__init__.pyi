"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from re import Pattern as _Pattern

HASH_REGEX: _Pattern
from rushlight.hub.progress import bar_class as bar_class
from rushlight.hub import download as download
from rushlight.hub.download import download_url_to_file as download_url_to_file
from rushlight.hub.download import get_dir as get_dir
from rushlight.hub.repositories import help as help
from rushlight.hub.repositories import list as list
from rushlight.hub.repositories import load as load
from rushlight.hub.download import load_state_dict_from_url as load_state_dict_from_url
from rushlight.hub import progress as progress
from rushlight.hub import repositories as repositories
from rushlight.hub.download import set_dir as set_dir
