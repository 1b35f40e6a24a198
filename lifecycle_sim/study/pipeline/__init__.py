"""Pipelines: production lines and training schedules, in which the peak is not what the average says."""
