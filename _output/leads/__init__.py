"""Hold leads that are not yet in the files of modes."""
