"""Numbers and sizes in a trace: those that vary, and those that only elements tell."""
