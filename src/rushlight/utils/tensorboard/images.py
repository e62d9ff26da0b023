"""Pictures for TensorBoard: tensors in any order of dims, several in one, with boxes, figures of matplotlib, moving
ones.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from rushlight._interface.base import numpy as np
from rushlight._interface.base import require
from rushlight.utils.tensorboard.summaries import _EXTRA, _summary, array_of, proto

__all__ = ["figure_array", "grid", "image", "image_with_boxes", "png", "video"]


def grid(images: Any, columns: int = 8) -> Any:
    """(count, 1 or 3, height, width) as one picture (3, height, width), row by row."""
    if images.shape[1] == 1:
        images = np.concatenate([images] * 3, 1)
    if images.ndim != 4 or images.shape[1] != 3:
        raise AssertionError(f"Input should be a 4D numpy array with 3 channels, found shape {images.shape}")
    count, _, height, width = images.shape
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    canvas = np.zeros((3, height * rows, width * columns), images.dtype)
    for i in range(count):
        y, x = divmod(i, columns)
        canvas[:, y * height : (y + 1) * height, x * width : (x + 1) * width] = images[i]
    return canvas


def to_hwc(array: Any, dataformats: str) -> Any:
    """A picture as (height, width, channels), from dims in the order of the letters; AssertionError where they do not
    fit.
    """
    letters = dataformats.upper()
    if len(set(letters)) != len(letters):
        raise AssertionError(f"You can not use the same dimension shorthand twice. input_format: {dataformats}")
    if len(letters) != array.ndim:
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {array.shape}, input_format: {dataformats}"
        )
    wanted = {4: "NCHW", 3: "HWC", 2: "HW"}.get(len(letters), "")
    if sorted(wanted) != sorted(letters):
        raise AssertionError(f"dataformats must have the letters of {wanted or 'NCHW, HWC or HW'}, found {dataformats}")
    array = array.transpose([letters.index(letter) for letter in wanted])
    if array.ndim == 4:
        return grid(array).transpose(1, 2, 0)
    if array.ndim == 2:
        array = array[:, :, None]
    return np.concatenate([array] * 3, 2) if array.shape[2] == 1 else array


def _bytes(array: Any) -> Any:
    """Numbers in [0, 1], or bytes, as bytes."""
    scale = 1 if array.dtype == np.uint8 else 255
    return (array.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def _picture(array: Any) -> Any:
    return require("PIL.Image", _EXTRA).fromarray(array)


def png(picture: Any) -> bytes:
    """A picture of Pillow as the bytes of a PNG file."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return file.getvalue()


def _image_summary(
    tag: str, array: Any, rescale: float = 1, boxes: Any = None, labels: Sequence[str] | None = None
) -> Any:
    height, width, channels = array.shape
    picture = _picture(array)
    for i, box in enumerate(boxes if boxes is not None else ()):
        _draw_box(picture, box, None if labels is None else labels[i])
    resampling = require("PIL.Image", _EXTRA).Resampling.LANCZOS
    picture = picture.resize((int(width * rescale), int(height * rescale)), resampling)
    made = proto("compat.proto.summary_pb2").Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=png(picture)
    )
    return _summary(tag, image=made)


def _draw_box(picture: Any, box: Any, label: str | None) -> None:
    """A red frame from (x, y) to (x, y), with a label in its lower left corner."""
    draw = require("PIL.ImageDraw", _EXTRA).Draw(picture)
    left, top, right, bottom = (float(v) for v in box)
    draw.line([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], width=2, fill="Red")
    if label:
        font = require("PIL.ImageFont", _EXTRA).load_default()
        x0, y0, x1, y1 = font.getbbox(label)
        margin = math.ceil(0.05 * (y1 - y0))
        draw.rectangle([(left, bottom - (y1 - y0) - 2 * margin), (left + x1 - x0, bottom)], fill="Red")
        draw.text((left + margin, bottom - (y1 - y0) - margin), label, fill="black", font=font)


def image(tag: str, value: Any, dataformats: str) -> Any:
    """A picture, or several in one."""
    return _image_summary(tag, _bytes(to_hwc(array_of(value), dataformats)))


def image_with_boxes(tag: str, value: Any, boxes: Any, rescale: float, dataformats: str, labels: Any) -> Any:
    """A picture with frames."""
    return _image_summary(tag, _bytes(to_hwc(array_of(value), dataformats)), rescale, array_of(boxes), labels)


def figure_array(figure: Any, close: bool) -> Any:
    """A figure of matplotlib (or each of a list) as an image, (3, height, width) or (count, 3, height, width)."""
    agg = require("matplotlib.backends.backend_agg", _EXTRA)
    if isinstance(figure, list):
        return np.stack([figure_array(each, close) for each in figure])
    canvas = agg.FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba(), dtype=np.uint8)[:, :, :3]
    if close:
        require("matplotlib.pyplot", _EXTRA).close(figure)
    return np.moveaxis(pixels, 2, 0)


def video(tag: str, value: Any, fps: float) -> Any:
    """Moving pictures (count, time, channels, height, width), side by side, as a GIF; needs the package moviepy."""
    moviepy = require("moviepy", "video")
    clip_class = getattr(moviepy, "ImageSequenceClip", None) or require("moviepy.editor", "video").ImageSequenceClip
    frames = _bytes(_side_by_side(array_of(value)))
    _, height, width, channels = frames.shape
    clip = clip_class(list(frames), fps=fps)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "video.gif")
        clip.write_gif(path, logger=None)
        with open(path, "rb") as file:
            data = file.read()
    made = proto("compat.proto.summary_pb2").Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=data
    )
    return _summary(tag, image=made)


def _side_by_side(films: Any) -> Any:
    """Films (count, time, channels, height, width) as one, (time, height, width, channels), black where none is left."""
    count, time, channels, height, width = films.shape
    rows = 2 ** ((count.bit_length() - 1) // 2)
    whole = 2 ** (count - 1).bit_length()
    films = np.concatenate([films, np.zeros((whole - count, time, channels, height, width), films.dtype)])
    films = films.reshape(rows, whole // rows, time, channels, height, width).transpose(2, 0, 4, 1, 5, 3)
    return films.reshape(time, rows * height, whole // rows * width, channels)
