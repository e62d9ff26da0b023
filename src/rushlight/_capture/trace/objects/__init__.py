"""Objects of the program in a trace: their classes, attributes, items, special methods and iterators."""
