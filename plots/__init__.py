"""The figures that the README shows."""
