"""The command line: running programs under the name `torch`, the demo, the report on an installation."""
