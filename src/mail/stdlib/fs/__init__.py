"""Actions on the files of one folder, the workspace."""
