"""Contents of TensorBoard's files: scalars, histograms, texts, tensors, curves, meshes, audio, hyperparameters, as
protocol buffers.
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import numpy as np
from rushlight._interface.base import require

__all__ = ["array_of", "proto"]

_EXTRA = "tensorboard"


def proto(name: str) -> Any:
    """A module of TensorBoard."""
    return require(f"tensorboard.{name}", _EXTRA)


def array_of(value: Any) -> Any:
    """A NumPy array of a tensor, an array or a number; NotImplementedError for anything else."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Tensor):
        value = value.detach()
        return (value.float() if value.dtype is rushlight.bfloat16 else value).numpy()
    if np.isscalar(value):
        return np.array([value])
    raise NotImplementedError(f"Got {type(value)}, but numpy array or torch tensor are expected.")


def _summary(tag: str, **value: Any) -> Any:
    pb = proto("compat.proto.summary_pb2")
    return pb.Summary(value=[pb.Summary.Value(tag=tag, **value)])


def _plugin(name: str, content: bytes = b"") -> Any:
    pb = proto("compat.proto.summary_pb2")
    return pb.SummaryMetadata(plugin_data=pb.SummaryMetadata.PluginData(plugin_name=name, content=content))


def _tensor(dtype: str, shape: Sequence[int] | None = None, **values: Any) -> Any:
    tensors, shapes = proto("compat.proto.tensor_pb2"), proto("compat.proto.tensor_shape_pb2")
    dims = None if shape is None else shapes.TensorShapeProto(dim=[shapes.TensorShapeProto.Dim(size=n) for n in shape])
    return tensors.TensorProto(dtype=dtype, tensor_shape=dims, **values)


# ***** numbers *****


def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """One number; AssertionError for several."""
    array = array_of(value).squeeze()
    if array.ndim != 0:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {array.size} and {array.ndim} dimensions."
        )
    number = float(array)
    if not new_style:
        return _summary(tag, simple_value=number)
    tensor = _tensor("DT_DOUBLE", double_val=[number]) if double_precision else _tensor("DT_FLOAT", float_val=[number])
    return _summary(tag, tensor=tensor, metadata=_plugin("scalars"))


_FIELDS = {
    "float16": ("DT_HALF", "half_val"), "bfloat16": ("DT_BFLOAT16", "half_val"), "float32": ("DT_FLOAT", "float_val"),
    "float64": ("DT_DOUBLE", "double_val"), "int8": ("DT_INT8", "int_val"), "uint8": ("DT_UINT8", "int_val"), "int16": ("DT_INT16", "int_val"),
    "int32": ("DT_INT32", "int_val"), "int64": ("DT_INT64", "int64_val"), "bool": ("DT_BOOL", "bool_val"),
    "complex64": ("DT_COMPLEX64", "scomplex_val"), "complex128": ("DT_COMPLEX128", "dcomplex_val"),
}  # fmt: skip


def tensor(tag: str, value: Tensor) -> Any:
    """A whole tensor; ValueError for one of 2 GB and more, and for dtypes that TensorBoard's format has not."""
    if value.numel() * value.itemsize >= 1 << 31:
        raise ValueError("tensor is bigger than protocol buffer's hard limit of 2GB in size")
    if value.dtype.name not in _FIELDS:
        raise ValueError(f"{tag} has unsupported tensor dtype {value.dtype}")
    dtype, field = _FIELDS[value.dtype.name]
    flat = value.detach().flatten()
    if field == "half_val":  # sixteen bits of each number
        numbers = flat.view(rushlight.int16).to(rushlight.int32).bitwise_and(0xFFFF).tolist()
    else:
        numbers = (rushlight.view_as_real(flat).flatten() if value.dtype.is_complex else flat).tolist()
    return _summary(tag, tensor=_tensor(dtype, tuple(value.shape), **{field: numbers}), metadata=_plugin("tensor"))


def default_bins() -> list[float]:
    """Bounds that grow by a tenth from 1e-12 to 1e20, on both sides of zero."""
    bounds = [1e-12]
    while bounds[-1] * 1.1 < 1e20:
        bounds.append(bounds[-1] * 1.1)
    return [*[-b for b in reversed(bounds)], 0.0, *bounds]


def histogram_raw(
    tag: str, low: float, high: float, num: int, total: float, squares: float, limits: Any, counts: Any
) -> Any:
    """A histogram whose numbers are known."""
    pb = proto("compat.proto.summary_pb2")
    made = pb.HistogramProto(
        min=low, max=high, num=num, sum=total, sum_squares=squares, bucket_limit=limits, bucket=counts
    )
    return _summary(tag, histo=made)


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """How often values lie between bounds; empty ends are left out.  ValueError without values."""
    array = array_of(values).astype(float).reshape(-1)
    if array.size == 0:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(array, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = _coarser(counts, limits, len(counts) // max_bins)
    filled = np.flatnonzero(counts)
    first, last = int(filled[0]), int(filled[-1])
    # A bucket's limit is its upper end; the one before the first says where that begins.
    buckets = [0 if first == 0 else int(counts[first - 1]), *counts[first : last + 1].tolist()]
    bounds = limits[first : last + 2].tolist()
    squares = float(array.dot(array))
    return histogram_raw(
        tag, float(array.min()), float(array.max()), len(array), float(array.sum()), squares, bounds, buckets
    )


def _coarser(counts: Any, limits: Any, step: int) -> tuple[Any, Any]:
    """Every `step` buckets as one."""
    rest = -len(counts) % step
    joined = np.pad(counts, (0, rest)).reshape(-1, step).sum(axis=-1)
    return joined, np.append(limits[:-1:step], limits[-1])


# ***** curves *****


def pr_curve_raw(tag: str, rows: Sequence[Any], num_thresholds: int = 127) -> Any:
    """A precision-recall curve: true and false positives, true and false negatives, precision and recall at each
    threshold.
    """
    content = proto("plugins.pr_curve.plugin_data_pb2").PrCurvePluginData(
        version=0, num_thresholds=min(num_thresholds, 127)
    )
    data = np.stack([array_of(row) if not isinstance(row, (list, tuple)) else np.array(row) for row in rows])
    made = _tensor("DT_FLOAT", data.shape, float_val=data.reshape(-1).tolist())
    return _summary(tag, tensor=made, metadata=_plugin("pr_curves", content.SerializeToString()))


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> Any:
    """A precision-recall curve of predictions in [0, 1] for labels that are 0 or 1."""
    count = min(num_thresholds, 127)
    truth, found = array_of(labels).reshape(-1), array_of(predictions).reshape(-1)
    weight = (
        np.ones_like(truth, dtype=float)
        if weights is None
        else np.broadcast_to(array_of(weights), truth.shape).astype(float)
    )
    bucket = np.floor(found * (count - 1)).astype(np.int32)
    positive, negative = weight * truth, weight * (1 - truth)
    tp, fp = (np.cumsum(np.bincount(bucket, w, minlength=count)[::-1])[::-1] for w in (positive, negative))
    tn, fn = fp[0] - fp, tp[0] - tp
    tiny = 1e-7
    return pr_curve_raw(tag, (tp, fp, tn, fn, tp / np.maximum(tiny, tp + fp), tp / np.maximum(tiny, tp + fn)), count)


def custom_scalars(layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> Any:
    """Which scalars TensorBoard shows in one chart: {category: {title: ["Multiline" or "Margin", [tags]]}}."""
    pb = proto("plugins.custom_scalar.layout_pb2")
    categories = []
    for category, charts in layout.items():
        made = []
        for title, (kind, tags) in charts.items():
            if kind == "Margin":
                if len(tags) != 3:
                    raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
                series = pb.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])
                made.append(pb.Chart(title=title, margin=pb.MarginChartContent(series=[series])))
            else:
                made.append(pb.Chart(title=title, multiline=pb.MultilineChartContent(tag=tags)))
        categories.append(pb.Category(title=category, chart=made))
    whole = pb.Layout(category=categories).SerializeToString()
    return _summary(
        "custom_scalars__config__",
        tensor=_tensor("DT_STRING", (), string_val=[whole]),
        metadata=_plugin("custom_scalars"),
    )


# ***** texts, sounds, meshes *****


def text(tag: str, words: str) -> Any:
    """A text, which TensorBoard reads as Markdown."""
    content = proto("plugins.text.plugin_data_pb2").TextPluginData(version=0).SerializeToString()
    made = _tensor("DT_STRING", (1,), string_val=[words.encode("utf-8")])
    return _summary(f"{tag}/text_summary", tensor=made, metadata=_plugin("text", content))


def audio(tag: str, sound: Any, sample_rate: int = 44100) -> Any:
    """A sound as a WAVE file: one channel, numbers in [-1, 1], what is beyond is cut."""
    array = array_of(sound).squeeze()
    if array.ndim != 1:
        raise AssertionError(f"input tensor should be 1 dimensional, found shape {tuple(array.shape)}")
    samples = (array.clip(-1, 1) * 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(sample_rate)
        writer.writeframes(samples.tobytes())
    made = proto("compat.proto.summary_pb2").Summary.Audio(
        sample_rate=sample_rate, num_channels=1, length_frames=len(samples), encoded_audio_string=file.getvalue(), content_type="audio/wav"
    )  # fmt: skip
    return _summary(tag, audio=made)


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config: Any) -> Any:
    """Points in space, (batch, points, 3), with colours of the same shape and triangles of their numbers."""
    metadata, kinds = proto("plugins.mesh.metadata"), proto("plugins.mesh.plugin_data_pb2").MeshPluginData
    pb = proto("compat.proto.summary_pb2")
    parts = [(vertices, kinds.VERTEX), (faces, kinds.FACE), (colors, kinds.COLOR)]
    given = [(array_of(part), kind) for part, kind in parts if part is not None]
    components = metadata.get_components_bitmask([kind for _, kind in given])
    settings = json.dumps(config, sort_keys=True) if config is not None else "{}"
    values = []
    for array, kind in given:
        about = metadata.create_summary_metadata(tag, None, kind, components, array.shape, None, json_config=settings)
        data = _tensor("DT_FLOAT", array.shape, float_val=array.reshape(-1).tolist())
        values.append(pb.Summary.Value(tag=metadata.get_instance_name(tag, kind), tensor=data, metadata=about))
    return pb.Summary(value=values)


# ***** hyperparameters *****


def _domain(value: Any, choices: Any) -> Any:
    """The values that a hyperparameter may have, if they are given."""
    if choices is None:
        return None
    pb = require("google.protobuf.struct_pb2", _EXTRA)
    key = "string_value" if isinstance(value, str) else "number_value"
    return pb.ListValue(values=[pb.Value(**{key: choice}) for choice in choices])


def hparams(values: Any, metrics: Any, domains: Any = None) -> tuple[Any, Any, Any]:
    """An experiment, a session's beginning and its end, for TensorBoard's page of hyperparameters."""
    for name, given in (("hparam_dict", values), ("metric_dict", metrics), ("hparam_domain_discrete", domains or {})):
        if not isinstance(given, dict):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    for name, choices in (domains or {}).items():
        if (
            name not in values
            or not isinstance(choices, list)
            or not all(isinstance(c, type(values[name])) for c in choices)
        ):
            raise TypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}]."
            )
    api, data = proto("plugins.hparams.api_pb2"), proto("plugins.hparams.plugin_data_pb2")
    meta = proto("plugins.hparams.metadata")
    start, infos = data.SessionStartInfo(), []
    for name, value in values.items():
        if value is None:
            continue
        kind = "DATA_TYPE_STRING" if isinstance(value, str) else "DATA_TYPE_FLOAT64"
        if isinstance(value, str):
            start.hparams[name].string_value = value
        elif isinstance(value, (int, float, Tensor)):
            start.hparams[name].number_value = float(array_of(value).reshape(-1)[0])
        else:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        infos.append(
            api.HParamInfo(
                name=name, type=api.DataType.Value(kind), domain_discrete=_domain(value, (domains or {}).get(name))
            )
        )
    metric_infos = [api.MetricInfo(name=api.MetricName(tag=name)) for name in metrics]
    experiment = api.Experiment(hparam_infos=infos, metric_infos=metric_infos)
    end = data.SessionEndInfo(status=api.Status.Value("STATUS_SUCCESS"))

    def wrapped(tag: str, **part: Any) -> Any:
        content = data.HParamsPluginData(version=meta.PLUGIN_DATA_VERSION, **part)
        return _summary(tag, metadata=_plugin(meta.PLUGIN_NAME, content.SerializeToString()))

    return (
        wrapped(meta.EXPERIMENT_TAG, experiment=experiment),
        wrapped(meta.SESSION_START_INFO_TAG, session_start_info=start),
        wrapped(meta.SESSION_END_INFO_TAG, session_end_info=end),
    )
