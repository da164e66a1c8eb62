"""The modes: one file per mode, which is imported only if the command runs that mode."""
