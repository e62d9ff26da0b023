"""Files of TensorBoard's projector: points in many dims, what they are called, and little pictures of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from rushlight._interface.base import numpy as np
from rushlight._interface.base import require
from rushlight.utils.tensorboard.images import _bytes, _picture, grid, png
from rushlight.utils.tensorboard.summaries import _EXTRA, array_of, proto

__all__ = ["write_embedding"]


def _write(folder: str, name: str, data: bytes) -> None:
    unfinished = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(unfinished, "wb") as file:
        file.write(data)
    os.replace(unfinished, os.path.join(folder, name))


def _safe(tag: str) -> str:
    """A tag as the name of a folder."""
    for letter in "%/\\":
        tag = tag.replace(letter, f"%{ord(letter):02x}")
    return tag


def _metadata(rows: Sequence[Any], header: Sequence[str] | None) -> bytes:
    if header:
        if len(header) != len(rows[0]):
            raise AssertionError("len of header must be equal to the number of columns in metadata")
        lines = ["\t".join(map(str, row)) for row in [header, *rows]]
    else:
        lines = [str(row) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _sprite(images: Any) -> bytes:
    """All pictures in a square."""
    columns = math.ceil(len(images) ** 0.5)
    arranged = grid(array_of(images), columns).transpose(1, 2, 0)
    square = np.zeros((arranged.shape[1], arranged.shape[1], 3), arranged.dtype)
    square[: arranged.shape[0]] = arranged
    return png(_picture(_bytes(square)))


def write_embedding(
    logdir: str, config: Any, points: Any, metadata: Any, images: Any, step: int | None, tag: str, header: Any
) -> Any:
    """Write the files of one embedding under `logdir`, and the list of all; returns that list."""
    points = array_of(points)
    if points.ndim != 2:
        raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
    for what, given in (("labels", metadata), ("images", images)):
        if given is not None and len(given) != len(points):
            raise AssertionError(f"#{what} should equal with #data points")
    place = f"{str(step or 0).zfill(5)}/{_safe(tag)}"
    folder = os.path.join(logdir, place)
    if os.path.isfile(folder):
        raise NotADirectoryError(f"Path: `{folder}` exists, but is a file. Cannot proceed.")
    os.makedirs(folder, exist_ok=True)
    pb = proto("plugins.projector.projector_config_pb2")
    config = pb.ProjectorConfig() if config is None else config
    info = pb.EmbeddingInfo(tensor_name=f"{tag}:{str(step or 0).zfill(5)}", tensor_path=f"{place}/tensors.tsv")
    lines = ["\t".join(str(number.item()) for number in row) for row in points]
    _write(folder, "tensors.tsv", ("\n".join(lines) + "\n").encode())
    if metadata is not None:
        _write(folder, "metadata.tsv", _metadata(metadata, header))
        info.metadata_path = f"{place}/metadata.tsv"
    if images is not None:
        _write(folder, "sprite.png", _sprite(images))
        info.sprite.image_path = f"{place}/sprite.png"
        info.sprite.single_image_dim.extend([images.shape[3], images.shape[2]])
    config.embeddings.extend([info])
    _write(
        logdir,
        "projector_config.pbtxt",
        require("google.protobuf.text_format", _EXTRA).MessageToString(config).encode(),
    )
    return config
