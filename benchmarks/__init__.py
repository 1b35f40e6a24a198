"""Speed and memory, stated as ratios within one run."""
