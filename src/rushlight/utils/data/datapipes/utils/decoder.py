"""`torch.utils.data.datapipes.utils.decoder`: bytes of files as the values that their extension tells.

>>> Decoder(basichandlers)([("a.json", b"[1, 2]"), ("b.cls", b"7"), ("c.unknown", b"x")])
{'a.json': [1, 2], 'b.cls': 7, 'c.unknown': b'x'}
"""

from __future__ import annotations

import io
import json
import os.path
import pickle
import tempfile
from collections.abc import Callable
from importlib import import_module
from typing import Any

import rushlight as torch
from rushlight.utils.data.datapipes.utils.streams import StreamWrapper

__all__ = [
    "Decoder",
    "ImageHandler",
    "MatHandler",
    "audiohandler",
    "basichandlers",
    "extension_extract_fn",
    "handle_extension",
    "imagehandler",
    "mathandler",
    "videohandler",
]

Handler = Callable[[str, Any], Any]


def basichandlers(extension: str, data: Any) -> Any:
    """Text (txt, text, transcript), numbers (cls, class, count, index, id ...; None for other text), JSON (json, jsn),
    pickles (pickle, pyd) and tensors (pt); None for other extensions.  A name without one is text.
    """
    if extension in ("txt", "text", "transcript", ""):
        return data.decode("utf-8")
    if extension in ("cls", "cls2", "class", "count", "index", "inx", "id"):
        try:
            return int(data)
        except ValueError:
            return None
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("pyd", "pickle"):
        return pickle.loads(data)
    return torch.load(io.BytesIO(data)) if extension == "pt" else None


def handle_extension(extensions: str, f: Callable[[Any], Any]) -> Handler:
    """A handler that gives `f(data)` for keys that end in the first of `extensions`, which are separated by spaces.

    As in PyTorch only extensions longer than the key are passed over: the others after the first are not tried.
    """
    endings = [each.split(".") for each in extensions.lower().split()]

    def handler(key: str, data: Any) -> Any:
        parts = key.lower().split(".")
        first = next((each for each in endings if len(each) <= len(parts)), None)
        return f(data) if first is not None and parts[-len(first) :] == first else None

    return handler


# Name of an image's form -> library, type of elements, channels.
imagespecs: dict[str, tuple[str, str | None, str]] = {
    **{f"{c}8": ("numpy", "uint8", c) for c in ("l", "rgb", "rgba")},
    **{c: ("numpy", "float", c) for c in ("l", "rgb", "rgba")},
    **{f"torch{c}8": ("torch", "uint8", c) for c in ("l", "rgb", "rgba")},
    **{f"torch{c}": ("torch", "float", c or "rgb") for c in ("l", "rgb", "", "rgba")},
    **{f"pil{c}": ("pil", None, c or "rgb") for c in ("l", "", "rgb", "rgba")},
}


def _package(name: str, project: str, use: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ModuleNotFoundError(
            f"Package `{package}` is required to be installed for {use}.Please use `pip install {project}` to install "
            "the package"
        ) from error


class ImageHandler:
    """Images as arrays, tensors (channels first) or PIL images: `imagespec` is one of `imagespecs` ("torchrgb8")."""

    def __init__(self, imagespec: str) -> None:
        if imagespec not in imagespecs:
            raise AssertionError(f"unknown image specification: {imagespec}")
        self.imagespec = imagespec.lower()

    def __call__(self, extension: str, data: Any) -> Any:
        if extension.lower() not in ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm"):
            return None
        np: Any = _package("numpy", "numpy", "default image decoder")
        pictures: Any = _package("PIL.Image", "Pillow", "default image decoder")
        library, elements, channels = imagespecs[self.imagespec]
        image = pictures.open(io.BytesIO(data)).convert(channels.upper())
        if library == "pil":
            return image
        array = np.asarray(image)
        if library == "numpy":
            return array if elements == "uint8" else array.astype("f") / 255.0
        tensor = torch.tensor(np.array(array.reshape(*array.shape[:2], -1).transpose(2, 0, 1)))
        return tensor if elements == "uint8" else tensor / 255.0


def imagehandler(imagespec: str) -> ImageHandler:
    """`ImageHandler(imagespec)`."""
    return ImageHandler(imagespec)


def _by_file(extension: str, data: bytes, read: Callable[[str], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"file.{extension}")
        with open(path, "wb") as file:
            file.write(data)
        return read(path)


def videohandler(extension: str, data: Any) -> Any:
    """Films as `torchvision.io.read_video` gives them; None for other extensions."""
    if extension not in ("mp4", "ogv", "mjpeg", "avi", "mov", "h264", "mpg", "webm", "wmv"):
        return None
    return _by_file(extension, data, _package("torchvision.io", "torchvision", "default video file loader").read_video)


def audiohandler(extension: str, data: Any) -> Any:
    """Sound as `torchaudio.load` gives it; None for other extensions."""
    if extension not in ("flac", "mp3", "sox", "wav", "m4a", "ogg", "wma"):
        return None
    return _by_file(extension, data, _package("torchaudio", "torchaudio", "default audio file loader").load)


class MatHandler:
    """Files of MATLAB as `scipy.io.loadmat` gives them, with its options."""

    def __init__(self, **loadmat_kwargs: Any) -> None:
        self.sio: Any = _package("scipy.io", "scipy", "mat file")
        self.loadmat_kwargs = loadmat_kwargs

    def __call__(self, extension: str, data: Any) -> Any:
        return self.sio.loadmat(io.BytesIO(data), **self.loadmat_kwargs) if extension == "mat" else None


def mathandler(**loadmat_kwargs: Any) -> MatHandler:
    """`MatHandler(**loadmat_kwargs)`."""
    return MatHandler(**loadmat_kwargs)


def extension_extract_fn(pathname: str) -> str:
    """The extension of a path without its dot."""
    return os.path.splitext(pathname)[1][1:]


class Decoder:
    """Decodes pairs of a key and bytes (or a stream, which it reads and closes): the first handler that gives something
    else than None decides, called with `key_fn(key)`; what none decodes stays as it is.
    """

    def __init__(self, *handler: Handler, key_fn: Callable[[str], str] = extension_extract_fn) -> None:
        self.handlers, self.key_fn = list(handler), key_fn

    def add_handler(self, *handler: Handler) -> None:
        """Handlers that are asked before the present ones."""
        self.handlers = [*handler, *self.handlers]

    @staticmethod
    def _is_stream_handle(data: Any) -> bool:
        held = data.file_obj if isinstance(data, StreamWrapper) else data
        return isinstance(held, (io.BufferedIOBase, io.RawIOBase))

    def decode1(self, key: str, data: Any) -> Any:
        """The value of one item."""
        if not data:
            return data
        if self._is_stream_handle(data):
            stream, data = data, b"".join(data)
            stream.close()
        return next((found for found in (each(key, data) for each in self.handlers) if found is not None), data)

    def decode(self, data: Any) -> dict[str, Any]:
        """The values by key, of one pair or many; bytes of keys that begin with "_" are text."""
        pairs = [data] if isinstance(data, tuple) else data or ()
        return {
            key: value.decode("utf-8")
            if key[0] == "_" and isinstance(value, bytes)
            else self.decode1(self.key_fn(key), value)
            for key, value in pairs
        }

    def __call__(self, data: Any) -> dict[str, Any]:
        return self.decode(data)
