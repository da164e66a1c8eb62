"""Test the whole program: command line, streams, pages, and damaged input."""
