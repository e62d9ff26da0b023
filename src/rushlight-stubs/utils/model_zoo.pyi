"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from rushlight.hub.download import load_state_dict_from_url as _load_state_dict_from_url

from rushlight.hub.progress import bar_class as bar_class
load_url = _load_state_dict_from_url
