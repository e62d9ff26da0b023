"""Translations of operators to ONNX, a file a subject; each registers its functions in `table.TABLE`."""
