"""The intermediate representation of TorchScript: types, graphs, schemas, passes."""
