"""`ONNXProgram`: an exported model in memory, which is run, changed and saved."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import LazyModule, trace_marks
from rushlight.onnx.errors import OnnxExporterError
from rushlight.onnx.exporting import optimize, serialize
from rushlight.onnx.exporting.build import Model, named
from rushlight.onnx.exporting.capture import dim_names
from rushlight.onnx.exporting.values import OnnxTensor, import_onnx
from rushlight.utils._pytree import tree_flatten

__all__ = ["ONNXProgram"]

np: Any = LazyModule("numpy")


def _ort_session_initializer(model: str | bytes) -> Any:
    """A session of onnxruntime on the CPU, for a path or the bytes of a model; ImportError without onnxruntime."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("running an exported model needs the package onnxruntime: pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, sess_options=options, providers=["CPUExecutionProvider"])


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        return OnnxTensor(value).numpy()
    return np.asarray(value, dtype=np.float32 if isinstance(value, float) else None)


def _tensor(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        bits = array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8)
        return rushlight.from_numpy(bits.copy()).view(getattr(rushlight, array.dtype.name))
    return rushlight.from_numpy(array.copy())


class ONNXProgram:
    """A model as `torch.onnx.export` gives it.

    - calling it runs it with onnxruntime: the results as a list of tensors
    - `model_proto`: the message of the package `onnx`; `model`: the model of the package `onnx_ir`, whose changes are kept
    - `exported_program`: what it was translated from

    >>> import rushlight as torch
    >>> program = torch.onnx.export(torch.nn.Linear(2, 3), (torch.ones(4, 2),), verbose=False)
    >>> [node.op_type for node in program.model_proto.graph.node]
    ['Gemm']
    """

    def __init__(self, model: Any, exported_program: Any) -> None:
        self._built: Model | None = model if isinstance(model, Model) else None
        self._ir = None if isinstance(model, Model) else model
        self.exported_program = exported_program
        self._session: Any = None
        self._folder: Any = None

    def __repr__(self) -> str:
        inner = "\n    ".join(self._summary())
        return f"ONNXProgram(\n    {inner}\n)"

    def _summary(self) -> list[str]:
        proto = self._proto(weights=False)
        given = {i.name for i in proto.graph.input}
        lines = ["opset " + ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in proto.opset_import)]
        user = (
            [v.name for v in self._model.graph.inputs]
            if self._built is not None and self._ir is None
            else sorted(given)
        )
        lines.append(f"inputs: {', '.join(user)}")
        lines += [f"{', '.join(n.output)} = {n.op_type}({', '.join(n.input)})" for n in proto.graph.node]
        lines.append(f"outputs: {', '.join(o.name for o in proto.graph.output)}")
        return lines

    # ***** parts *****

    @property
    def _model(self) -> Model:
        if self._built is None or self._ir is not None:
            raise OnnxExporterError("the model was taken as one of onnx_ir: change that")
        return self._built

    @property
    def model(self) -> Any:
        """The model as one of the package `onnx_ir`; from then on it is the model, and changes of it are kept.

        ImportError without `onnx_ir`.
        """
        if self._ir is None:
            try:
                import onnx_ir
            except ImportError as error:
                raise ImportError("ONNXProgram.model needs the package onnx_ir: pip install onnx-ir") from error
            self._ir = onnx_ir.from_proto(self._proto())
        return self._ir

    @model.setter
    def model(self, value: Any) -> None:
        self._ir = value

    @property
    def model_proto(self) -> Any:
        """The model as `onnx.ModelProto`; ValueError where its weights are over 2 GB."""
        return self._proto()

    def _proto(self, weights: bool = True) -> Any:
        if self._ir is not None:
            import onnx_ir

            return onnx_ir.to_proto(self._ir)
        assert self._built is not None
        return serialize.model_proto(self._built, weights=weights)

    # ***** changes *****

    def optimize(self) -> None:
        """Compute calls of constants and take out what nothing reads."""
        optimize.fold(self._model)
        optimize.prune(self._model)

    def apply_weights(self, state_dict: Mapping[str, Any]) -> None:
        """Take tensors in the place of the weights with their names; ValueError for another shape or dtype.

        Names that the model has not are left out, with a warning.
        """
        by_name = {v.name: v for v in self._model.graph.constants}
        for name, tensor in state_dict.items():
            value = by_name.get(name)
            if value is None:
                warnings.warn(f"the model has no weight {name!r}", stacklevel=2)
                continue
            if self._model.graph.constants[value].tensor is None:
                raise ValueError(
                    f"the weight {name!r} was changed by the optimization of the model: export with optimize=False"
                )
            if tuple(tensor.shape) != tuple(value.shape or ()) or tensor.dtype != value.dtype:
                raise ValueError(
                    f"the weight {name!r} is {value.dtype}{list(value.shape or ())}, not {tensor.dtype}{list(tensor.shape)}"
                )
            self._model.graph.constants[value] = OnnxTensor(tensor)
        self.release()

    def rename_axes(self, rename_mapping: Mapping[Any, str]) -> None:
        """Give other names to dims that vary: by their names now."""
        current = {str(old): new for old, new in rename_mapping.items()}
        if self._ir is not None:
            self._built, self._ir = None, _renamed_ir(self._ir, current)
            return
        dims = {symbol: current.get(name, name) for symbol, name in self._model.dims.items()}
        self._model.dims = {**current, **dims}

    def _rename_dynamic_axes(self, dynamic_shapes: Any) -> None:
        self._model.dims.update(dim_names(self.exported_program, dynamic_shapes))

    # ***** files *****

    @trace_marks.changes_later_calls
    def save(
        self,
        destination: Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model to a path (or an open file).

        - `external_data`: put weights into `<name>.data` beside it: True, False, or None for models over 2 GB alone
        - `include_initializers`: False leaves the weights out: they become inputs
        - `keep_initializers_as_inputs`: list weights as inputs too, so that a run can give others

        Files are written under temporary names first.  ValueError where one file cannot hold the weights.
        """
        if self._ir is not None:
            proto = self._proto()
            import_onnx().save(
                proto,
                destination,
                save_as_external_data=bool(external_data),
                location=f"{Path(os.fspath(destination)).name}.data" if external_data else None,
            )
            return
        serialize.save(self._model, destination, external_data, keep_initializers_as_inputs, include_initializers)

    # ***** runs *****

    def _feed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The model's inputs by name: tensors, and numbers that the program takes as ones."""
        leaves = tree_flatten((tuple(args), dict(kwargs)))[0]
        specs = [s for s in self.exported_program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        if len(leaves) == len(specs):
            leaves = [v for v, s in zip(leaves, specs, strict=True) if type(s.arg).__name__ != "ConstantArgument"]
        else:
            leaves = [v for v in leaves if isinstance(v, Tensor)]
        names = self._input_names()
        if len(leaves) != len(names):
            raise ValueError(f"the model takes {len(names)} inputs ({', '.join(names)}), and {len(leaves)} were given")
        return {name: _array(v) for name, v in zip(names, leaves, strict=True)}

    def _input_names(self) -> list[str]:
        if self._ir is not None:
            return [v.name for v in self._ir.graph.inputs]
        names = named(self._model)
        return [names[v] for v in self._model.graph.inputs]

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The results of a run with onnxruntime, as tensors."""
        feed = self._feed(args, kwargs)
        if self._session is None:
            self.initialize_inference_session()
        return [_tensor(a) for a in self._session.run(None, feed)]

    def call_reference(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The results of a run with onnx's reference, in NumPy: slow, and independent of any runtime."""
        from onnx.reference import ReferenceEvaluator

        return [_tensor(a) for a in ReferenceEvaluator(self._proto()).run(None, self._feed(args, kwargs))]

    def compute_values(
        self, value_names: Sequence[str], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Values inside of the model, by their names, in a run with onnxruntime; ValueError for names that it has not."""
        proto = self._proto()
        known = {o for n in proto.graph.node for o in n.output} | {i.name for i in proto.graph.input}
        missing = [n for n in value_names if n not in known]
        if missing:
            raise ValueError(f"the model has no values {', '.join(missing)}")
        del proto.graph.output[:]
        for name in value_names:
            proto.graph.output.add().name = name
        session = _ort_session_initializer(proto.SerializeToString())
        return [_tensor(a) for a in session.run(list(value_names), self._feed(args, kwargs or {}))]

    def initialize_inference_session(self, initializer: Callable[[Any], Any] = _ort_session_initializer) -> None:
        """Make the session that calls run in: `initializer` gets a path, or the bytes of the model."""
        if self._ir is None and serialize.weight_bytes(self._model) > 1 << 30:
            self._folder = tempfile.TemporaryDirectory(prefix="rushlight-onnx-")
            path = os.path.join(self._folder.name, "model.onnx")
            self.save(path, external_data=True)
            self._session = initializer(path)
        else:
            self._session = initializer(self._proto().SerializeToString())

    def release(self) -> None:
        """Let the session go, and what it was made from."""
        self._session = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _renamed_ir(model: Any, names: Mapping[str, str]) -> Any:
    import onnx_ir

    proto = onnx_ir.to_proto(model)
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = names[dim.dim_param]
    return onnx_ir.from_proto(proto)
