"""Special functions: the error and gamma functions, orthogonal polynomials, zeta."""
