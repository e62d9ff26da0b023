"""`torch.onnx.export`: options, the steps of an export, and what is written beside the model."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rushlight
from rushlight.onnx.errors import OnnxExporterError, OnnxExporterWarning
from rushlight.onnx.exporting import optimize
from rushlight.onnx.exporting.build import built
from rushlight.onnx.exporting.capture import axes_as_shapes, captured, dim_names, exporting, without_names
from rushlight.onnx.exporting.custom import custom_table
from rushlight.onnx.exporting.functions import written_by_functions
from rushlight.onnx.exporting.program import ONNXProgram
from rushlight.onnx.exporting.values import import_onnx

__all__ = ["Options", "exported", "timed"]

DEFAULT_OPSET, LEAST, GREATEST = 20, 17, 23


@dataclass
class Options:
    """Options of an export, besides the model and its arguments."""

    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    opset: int | None = None
    dynamo: bool = True
    dynamic_shapes: Any = None
    dynamic_axes: Mapping[str, Any] | None = None
    custom: Mapping[Any, Any] | None = None
    optimize: bool = True
    training: Any = None
    steps: dict[str, float] = field(default_factory=dict)


@contextlib.contextmanager
def timed(options: Options, name: str) -> Iterator[None]:
    """Note how long a part of the export takes."""
    start = time.perf_counter()
    try:
        yield
    finally:
        options.steps[name] = time.perf_counter() - start


def _opset(asked: int | None) -> tuple[int, int | None]:
    """(the opset to translate to, an older one to convert to afterwards)."""
    if asked is None:
        return DEFAULT_OPSET, None
    if asked > GREATEST:
        raise ValueError(f"opset_version={asked}: models are exported to opsets {LEAST} to {GREATEST}")
    if asked < LEAST:
        warnings.warn(
            f"operators are translated to opset {LEAST} and then converted to {asked} by onnx.version_converter; where that fails the "
            f"model stays at {LEAST}",
            OnnxExporterWarning,
            stacklevel=4,
        )
        return LEAST, asked
    return asked, None


@contextlib.contextmanager
def _mode(model: Any, training: Any) -> Iterator[None]:
    """The model in the mode that `training` asks for (EVAL, PRESERVE, TRAINING), each of its modules."""
    if training is None or training.name == "PRESERVE" or not isinstance(model, rushlight.nn.Module):
        yield
        return
    before = [(m, m.training) for m in model.modules()]
    model.train(training.name == "TRAINING")
    try:
        yield
    finally:
        for module, was in before:
            module.training = was


def _shapes(model: Any, args: Any, kwargs: Any, options: Options) -> tuple[Any, Any]:
    """(dynamic_shapes as the user named dims, the same for `torch.export`)."""
    given = options.dynamic_shapes
    if given is None and options.dynamic_axes:
        if options.input_names is None:
            raise ValueError("dynamic_axes names inputs: give input_names")
        axes = {k: v for k, v in options.dynamic_axes.items() if k in options.input_names}
        unknown = set(options.dynamic_axes) - set(options.input_names) - set(options.output_names or ())
        if unknown:
            raise ValueError(f"dynamic_axes has names that are no inputs or outputs: {', '.join(sorted(unknown))}")
        given = axes_as_shapes(args, kwargs, options.input_names, axes)
        return given, without_names(given, lenient=True)
    return given, None if given is None else without_names(given, lenient=False)


def exported(model: Any, args: Any, kwargs: Any, options: Options) -> ONNXProgram:
    """Capture, translate, optimize."""
    import_onnx()
    args = args if isinstance(args, tuple) else (args,)
    if args and isinstance(args[-1], dict) and not kwargs and not options.dynamo:
        args, kwargs = args[:-1], args[-1]  # the classic form: keyword arguments come last
    kwargs = dict(kwargs or {})
    opset, older = _opset(options.opset)
    named, shapes = _shapes(model, args, kwargs, options)
    custom = custom_table(options.custom, opset)
    functions = contextlib.nullcontext() if options.dynamo else written_by_functions()
    with exporting(), functions, _mode(model, options.training):
        with timed(options, "capture"):
            program = captured(model, args, kwargs, shapes, custom)
        with timed(options, "translate"):
            dims = {} if named is None else dim_names(program, named)
            made = built(program, opset, custom, options.input_names, options.output_names, dims)
    with timed(options, "optimize"):
        if options.optimize:
            optimize.fold(made)
        optimize.prune(made)
    result = ONNXProgram(made, program)
    if options.dynamic_axes and options.dynamic_shapes is None:
        _name_outputs(made, options)
    return result if older is None else _converted(result, older)


def _name_outputs(made: Any, options: Options) -> None:
    """Names of dims of results, where those vary and have no names of inputs."""
    for i, name in enumerate(options.output_names or ()):
        given = (options.dynamic_axes or {}).get(name)
        if given is None or i >= len(made.graph.outputs):
            continue
        shape = made.graph.outputs[i].shape or ()
        items = given.items() if isinstance(given, Mapping) else [(d, f"{name}_dim_{d}") for d in given]
        for d, text in items:
            size = shape[int(d)] if -len(shape) <= int(d) < len(shape) else 0
            if isinstance(size, str):
                made.dims.setdefault(size, str(text))


def _converted(program: ONNXProgram, opset: int) -> ONNXProgram:
    """The program in an older opset, where onnx's converter can."""
    import_onnx()
    import onnx.version_converter
    import onnx_ir

    try:
        proto = onnx.version_converter.convert_version(program.model_proto, opset)
        onnx.checker.check_model(proto)
    except Exception as error:  # what the converter raises has no type of its own
        warnings.warn(f"the model stays at opset {LEAST}: {error}", OnnxExporterWarning, stacklevel=2)
        return program
    return ONNXProgram(onnx_ir.from_proto(proto), program.exported_program)


# ***** beside the model *****


def write_artifacts(
    program: ONNXProgram, options: Options, folder: Any, report: bool, profile: bool, dump: bool, checked: str
) -> None:
    """A report, a profile, the exported program: files in a folder, with the time in their names."""
    base = Path(os.fspath(folder))
    base.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y-%m-%dT%H-%M-%S")
    if report or profile:
        lines = ["# Export to ONNX", "", "| step | seconds |", "| --- | --- |"]
        lines += [f"| {name} | {seconds:.3f} |" for name, seconds in options.steps.items()]
        if report:
            counts: dict[str, int] = {}
            for node in program.model_proto.graph.node:
                counts[node.op_type] = counts.get(node.op_type, 0) + 1
            lines += ["", "## Operators", "", "| operator | calls |", "| --- | --- |"]
            lines += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
            lines += [
                "",
                "## Verification",
                "",
                checked or "not asked for",
                "",
                "## Program",
                "",
                "```",
                str(program.exported_program),
                "```",
            ]
        (base / f"onnx_export_{stamp}_{'report' if report else 'profile'}.md").write_text(
            "\n".join(lines) + "\n", encoding="utf-8"
        )
    if dump:
        rushlight.export.save(program.exported_program, base / f"onnx_export_{stamp}.pt2")


def verified(program: ONNXProgram, model: Any, args: Any, kwargs: Any) -> str:
    """Compare a run by onnxruntime with the program itself: a line for each result; OnnxExporterError where they differ."""
    args = args if isinstance(args, tuple) else (args,)
    module = program.exported_program.module()
    with rushlight.no_grad():
        wanted = [
            v for v in rushlight.utils._pytree.tree_flatten(module(*args, **dict(kwargs or {})))[0] if v is not None
        ]
    lines = []
    for i, (have, want) in enumerate(zip(program(*args, **dict(kwargs or {})), wanted, strict=True)):
        want = want if isinstance(want, rushlight.Tensor) else rushlight.tensor(want)
        if tuple(have.shape) != tuple(want.shape):
            raise OnnxExporterError(
                f"verification failed: result {i} has shape {tuple(have.shape)}, not {tuple(want.shape)}"
            )
        one, two = have.double(), want.detach().double()
        worst = float((one - two).abs().max()) if want.numel() else 0.0
        scale = float(two.abs().max()) if want.numel() else 0.0
        limit = 1e-2 if want.dtype in (rushlight.float16, rushlight.bfloat16) else 1e-4
        lines.append(f"result {i}: greatest difference {worst:.3g}, greatest value {scale:.3g}")
        if not worst <= limit * max(scale, 1.0):
            raise OnnxExporterError(f"verification failed: {lines[-1]}")
    return "\n".join(lines)


def write(program: ONNXProgram, f: Any, external: bool, keep_inputs: bool, weights: bool) -> None:
    """Save the model where a path was given."""
    program.save(f, include_initializers=weights, keep_initializers_as_inputs=keep_inputs, external_data=external)
