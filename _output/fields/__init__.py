"""Declare the fields of all answers: one file per mode, and files for fields that modes share.

`Answer` in a mode's file is the answer of that mode; `Absent` (in some files) is the object that
the mode prints if there is no answer. The string after a field is the documentation of the field.
FIELDS.md and `--schema` are generated from these classes, and mypy checks the modes against them.
"""
