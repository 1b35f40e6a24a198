"""Captures a step for each of some batches and lengths and prints the peaks as a CSV of probes, which ``lifecycle-sim fit`` reads.

``python -m benchmarks.probes scenarios/capture/reference.py:full --device rtx5090 --batch 1,2,4,8 --seq 128,256,384`` made
``scenarios/batch/reference_probes.csv``.
"""

from __future__ import annotations

import click

from lifecycle_sim.cli.capture import split_program
from lifecycle_sim.cli.fit_options import counts
from lifecycle_sim.study.batch.probes import IN_PHASE
from lifecycle_sim.study.batch.runs import CapturePlan, capture_runs


@click.command()
@click.argument("program")
@click.option("--device", default="h100")
@click.option("--batch", multiple=True, callback=counts, default=("1,2,4",))
@click.option("--seq", multiple=True, callback=counts, default=("128,256",))
@click.option("--basis", default="requested")
@click.option("--autocast")
@click.option("--warmup", default=2)
@click.option("--workers", type=int)
def main(
    program: str,
    device: str,
    batch: tuple[int, ...],
    seq: tuple[int, ...],
    basis: str,
    autocast: str | None,
    warmup: int,
    workers: int | None,
) -> None:
    """Print the probes of PROGRAM, a FILE.py or FILE.py:FUNCTION."""
    path, function = split_program(program)
    measure = capture_runs(CapturePlan(path, function, device=device, autocast=autocast, warmup=warmup), workers)
    found = measure([(length, size) for length in seq for size in batch])
    phases = list(dict.fromkeys(name for peaks in found for name in peaks.probe(basis).phases))
    click.echo(",".join(("batch,seq,peak,basis,evidence,step,phase", *(f"{IN_PHASE}{name}" for name in phases))))
    for peaks in found:
        inside = [f"{peaks.phases[name]} B" if name in peaks.phases else "" for name in phases]
        row = (f"{peaks.batch},{peaks.seq},{peaks.peak(basis)} B,{basis},{peaks.evidence},{warmup + 1},{peaks.phase_of(basis)}", *inside)
        click.echo(",".join(row))


if __name__ == "__main__":
    main()
