"""The modes: a file each, and one for each thing that several share. Loaded when asked for."""
