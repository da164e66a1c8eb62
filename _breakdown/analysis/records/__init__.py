"""Records: how they are made, read and compared."""
