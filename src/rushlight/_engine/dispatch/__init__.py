"""From a call to its plan: binding, signatures, derivation, plans."""
