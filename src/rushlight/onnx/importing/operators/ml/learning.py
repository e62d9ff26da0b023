"""The domain `ai.onnx.ml`: encoders, scalers, linear models, trees, support vector machines."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.texts import texts
from rushlight.onnx.importing.table import ML, Value, operator
from rushlight.onnx.importing.values import Host, numpy, tensor

__all__ = ["labels_of", "transformed"]


def _float(x: Any) -> Any:
    return x if x.is_floating_point() else x.to(torch.float32)


def transformed(scores: Any, how: str) -> Any:
    """Scores of classes as their `post_transform` says."""
    if how in ("NONE", ""):
        return scores
    if how == "LOGISTIC":
        return torch.sigmoid(scores)
    if how == "SOFTMAX":
        return torch.softmax(scores, -1)
    if how == "SOFTMAX_ZERO":
        # Scores of zero stay zero, and the others sum to 1.
        kept = scores != 0
        weights = torch.where(kept, torch.exp(scores - scores.amax(-1, keepdim=True)), torch.zeros_like(scores))
        total = weights.sum(-1, keepdim=True)
        return weights / torch.where(total == 0, torch.ones_like(total), total)
    if how == "PROBIT":
        return 2**0.5 * torch.erfinv(2 * scores - 1)
    raise ValueError(f"unknown post_transform {how!r}")


def labels_of(places: Any, integers: Any, strings: Any) -> Any:
    """Labels of classes by their positions."""
    if strings:
        return texts([strings[i] for i in places.tolist()], places.shape)
    return torch.tensor(integers, dtype=torch.int64)[places] if integers else places.to(torch.int64)


# ***** elements *****


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(x: Value, indices: Any) -> Any:
    x, places = tensor(x), indices.reshape(-1).to(torch.int64)
    if isinstance(x, numpy.ndarray):
        return x[..., places.numpy()]
    taken = torch.index_select(x, x.ndim - 1, places)
    return taken.reshape(1, -1) if x.ndim == 1 else taken


@operator("Binarizer", domain=ML)
def binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return (x > threshold).to(x.dtype)


@operator("Scaler", domain=ML)
def scaler(x: Any, *, offset: list[float] | None = None, scale: list[float] | None = None) -> Any:
    x = _float(x).to(torch.float32)
    x = x if offset is None else x - torch.tensor(offset)
    return x if scale is None else x * torch.tensor(scale)


@operator("Normalizer", domain=ML)
def normalizer(x: Any, *, norm: str = "MAX") -> Any:
    x = _float(x).to(torch.float32)
    if norm not in ("MAX", "L1", "L2"):
        raise ValueError(f"norm is MAX, L1 or L2, not {norm!r}")
    if norm == "L2":
        size = torch.sqrt((x * x).sum(-1, keepdim=True))
    else:
        size = torch.abs(x).sum(-1, keepdim=True) if norm == "L1" else x.amax(-1, keepdim=True)
    return x / torch.where(size == 0, torch.ones_like(size), size)


@operator("Imputer", domain=ML)
def imputer(
    x: Any,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:
    given = imputed_value_floats if imputed_value_floats is not None else imputed_value_int64s
    if given is None:
        raise ValueError("Imputer has no values to put in")
    gone = replaced_value_float if x.is_floating_point() else replaced_value_int64
    lacks = torch.isnan(x) if gone != gone else x == gone
    return torch.where(lacks, torch.tensor(given, dtype=x.dtype), x)


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(
    x: Value, *, cats_int64s: list[int] | None = None, cats_strings: list[str] | None = None, zeros: int = 1
) -> Any:
    x = tensor(x)
    if cats_strings:
        table = {text: i for i, text in enumerate(cats_strings)}
        places = [table.get(text, -1) for text in x.ravel()]
        count = len(cats_strings)
    else:
        table = {number: i for i, number in enumerate(cats_int64s or [])}
        places = [table.get(int(number), -1) for number in x.reshape(-1).tolist()]
        count = len(table)
    if not zeros and -1 in places:
        raise ValueError("OneHotEncoder met an unknown category")
    wanted = torch.tensor(places, dtype=torch.int64).reshape(*x.shape, 1)
    return (wanted == torch.arange(count)).to(torch.float32)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(*xs: Any, inputdimensions: list[int] | None = None) -> Any:
    parts = []
    for i, x in enumerate(xs):
        x = x.reshape(1, -1) if x.ndim == 1 else x
        width = inputdimensions[i] if inputdimensions else x.shape[1]
        part = x[:, :width].to(torch.float32)
        parts.append(torch.cat([part, part.new_zeros(part.shape[0], width - part.shape[1])], 1))
    return torch.cat(parts, 1)


# ***** maps *****


def _encoded(x: Any, keys: list[Any], values: list[Any], default: Any) -> list[Any]:
    table = dict(zip(keys, values, strict=True))
    items = x.ravel().tolist() if isinstance(x, numpy.ndarray) else x.reshape(-1).tolist()
    nan = next((table[key] for key in table if key != key), default)
    return [nan if item != item else table.get(item, default) for item in items]


def _items(value: Any) -> list[Any]:
    if isinstance(value, numpy.ndarray):
        return value.ravel().tolist()
    return value.items if isinstance(value, Host) else value.reshape(-1).tolist()


@operator("LabelEncoder", domain=ML)
def label_encoder_old(
    x: Value, *, classes_strings: list[str], default_int64: int = -1, default_string: str = "_Unused"
) -> Any:
    x = tensor(x)
    if isinstance(x, numpy.ndarray):
        found = _encoded(x, classes_strings, list(range(len(classes_strings))), default_int64)
        return torch.tensor(found, dtype=torch.int64).reshape(x.shape)
    return texts(_encoded(x, list(range(len(classes_strings))), classes_strings, default_string), x.shape)


@operator("LabelEncoder", since=2, domain=ML)
def label_encoder(
    x: Value,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Any = None,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: Any = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: Any = None,
) -> Any:
    x = tensor(x)
    keys = keys_strings or keys_int64s or keys_floats or _items(keys_tensor)
    if values_strings is not None:
        return texts(_encoded(x, keys, values_strings, default_string), x.shape)
    if values_int64s is not None:
        return torch.tensor(_encoded(x, keys, values_int64s, default_int64), dtype=torch.int64).reshape(x.shape)
    if values_floats is not None:
        return torch.tensor(_encoded(x, keys, values_floats, default_float), dtype=torch.float32).reshape(x.shape)
    values = _items(values_tensor)
    if isinstance(values_tensor, numpy.ndarray):
        default = default_string if default_tensor is None else _items(default_tensor)[0]
        return texts(_encoded(x, keys, values, default), x.shape)
    kind = tensor(values_tensor).dtype
    default = (-0.0 if kind.is_floating_point else -1) if default_tensor is None else _items(default_tensor)[0]
    return torch.tensor(_encoded(x, keys, values, default), dtype=kind).reshape(x.shape)


@operator("CategoryMapper", domain=ML)
def category_mapper(
    x: Value,
    *,
    cats_int64s: list[int],
    cats_strings: list[str],
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:
    x = tensor(x)
    if isinstance(x, numpy.ndarray):
        found = _encoded(x, cats_strings, cats_int64s, default_int64)
        return torch.tensor(found, dtype=torch.int64).reshape(x.shape)
    return texts(_encoded(x, cats_int64s, cats_strings, default_string), x.shape)


@operator("DictVectorizer", domain=ML)
def dict_vectorizer(
    x: Value, *, int64_vocabulary: list[int] | None = None, string_vocabulary: list[str] | None = None
) -> Any:
    words: list[Any] = list(string_vocabulary or int64_vocabulary or [])
    rows = x if isinstance(x, list) else [x]
    found = [[row.get(word, 0) for word in words] for row in rows]
    if any(isinstance(one, str) for row in found for one in row):
        return texts([str(one or "") for row in found for one in row], (len(rows), len(words)))
    return torch.tensor(found)


@operator("CastMap", domain=ML)
def cast_map(x: Value, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> Any:
    values = [x[key] for key in sorted(x)]
    if map_form == "SPARSE":
        if not 0 < max_map <= 1 << 24:
            raise ValueError(f"max_map is {max_map}")
        values = [x.get(i, "" if cast_to == "TO_STRING" else 0) for i in range(max_map)]
    if cast_to == "TO_STRING":
        return texts([str(value) for value in values], (1, len(values)))
    kind = torch.float32 if cast_to == "TO_FLOAT" else torch.int64
    return torch.tensor([float(value) for value in values]).to(kind).reshape(1, -1)


@operator("ZipMap", domain=ML)
def zip_map(
    x: Any, *, classlabels_int64s: list[int] | None = None, classlabels_strings: list[str] | None = None
) -> Any:
    labels: list[Any] = list(classlabels_strings or classlabels_int64s or [])
    return [dict(zip(labels, row, strict=True)) for row in x.tolist()]


# ***** linear models *****


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    x: Any,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Any:
    weights = torch.tensor(coefficients).reshape(targets, -1)
    y = torch.matmul(x.to(torch.float32), weights.T)
    return transformed(y if intercepts is None else y + torch.tensor(intercepts), post_transform)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    x: Any,
    *,
    coefficients: list[float],
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    intercepts: list[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> Any:
    labels: list[Any] = list(classlabels_strings or classlabels_ints or [])
    width = x.shape[-1]
    weights = torch.tensor(coefficients).reshape(-1, width)
    scores = torch.matmul(x.to(torch.float32).reshape(-1, width), weights.T)
    scores = scores if intercepts is None else scores + torch.tensor(intercepts)
    if scores.shape[1] == 1 and len(labels) == 2:
        # One score stands for two classes.
        other = 1 - scores if post_transform in ("NONE", "PROBIT") else -scores
        scores = torch.cat([other, scores], 1)
    scores = transformed(scores, post_transform)
    return labels_of(torch.argmax(scores, 1), classlabels_ints, classlabels_strings), scores
