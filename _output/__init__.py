"""Declare the fields of answers, and show answers as text and as a page. The package works on
answers alone and does not import the class `Step`."""
