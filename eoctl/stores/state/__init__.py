"""The files, folders and tables that hold a rebuilt state."""
