"""Memory that processes share, mapped files, pickles."""
