"""The scenarios and recordings that ship with the project."""
