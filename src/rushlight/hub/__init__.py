"""Models from repositories with a `hubconf.py`, and files from the network, as `torch.hub`.

`load`, `list` and `help` take a repository of GitHub, `owner/name[:ref]`, or (`load`) a local folder.  What comes from
GitHub is code that will run: its owner must be trusted first.  The cache is `get_dir()`.

>>> import rushlight as torch
>>> torch.hub.load("/no/such/folder", "model", source="local")
Traceback (most recent call last):
...
FileNotFoundError: [Errno 2] No such file or directory: '/no/such/folder/hubconf.py'
"""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError as HTTPError
from urllib.error import URLError as URLError
from urllib.parse import urlparse

from rushlight._interface.base import no_name
from rushlight.hub.download import (
    HASH_REGEX,
    _get_torch_home,
    download_url_to_file,
    get_dir,
    load_state_dict_from_url,
    set_dir,
)
from rushlight.hub.progress import bar_class
from rushlight.hub.repositories import help, list, load

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # which other packages take from here
        return bar_class()
    raise no_name(__name__, name)
