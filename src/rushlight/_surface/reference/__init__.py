"""How functions may be called: forms, type stubs and documentation pages, written from the operator table."""
