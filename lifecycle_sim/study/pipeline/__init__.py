"""Pipelines: production lines, and schedules of pipeline-parallel training."""
