"""The operator table: each operator written once, over primitives."""
