"""Implement the modes, one file each; a file is imported only when its mode runs."""
