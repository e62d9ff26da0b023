"""The host runtime: the natively compiled half of every call (dispatcher, plans, nodes, storages), for any device."""
