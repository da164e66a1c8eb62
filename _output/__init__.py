"""Declare the fields of answers, and show answers as text and as a page. The package does not know
steps."""
