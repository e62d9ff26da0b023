"""The native host runtime: storages, memory pool, worker threads, dispatcher, plans and nodes."""
