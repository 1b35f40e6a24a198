"""``python -m lifecycle_sim`` is the command ``lifecycle-sim``."""

from lifecycle_sim.cli import main

if __name__ == "__main__":
    main(prog_name="lifecycle-sim")
