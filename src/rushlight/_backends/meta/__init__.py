"""The meta device: shapes, dtypes and strides without memory."""
