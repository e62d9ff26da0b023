"""ONNX models as modules: files are read and checked, their graphs prepared once, and run as rushlight's operators."""
