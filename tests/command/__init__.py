"""Tests of the program as a whole: its command line, its streams, its pages, what breaks it."""
