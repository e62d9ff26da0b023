"""From a captured program (a graph of aten operators) to an ONNX model: capture, translate, optimize, serialize."""
