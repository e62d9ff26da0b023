"""Derivatives of aten operators, written as formulas over aten operators."""
