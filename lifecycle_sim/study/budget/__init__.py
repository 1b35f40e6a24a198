"""Budgets: what is there whatever the batch, what a run costs in operations and time, and which evidence a plan is missing.

============ ============================================================================================================
states       ``state_budget``: weights, gradients, moments, in exact bytes; with ``optimizers``, ``sharding``, ``adapters``
shapes       parameters of the usual transformers from their sizes, and what N can mean
activations  what a transformer layer keeps for backward, as a closed form
compute      operations: 6ND, attention, recomputation, appendix F, mixtures of experts
tokens       positions, processed and distinct tokens, and samples
speed        utilisation and time, from measured throughput
allocation   compute-optimal sizes by three approaches, and where they hold
planner      candidates (N, D) for a budget, with the evidence that is missing
fit          a law fitted to runs of one's own, with intervals
protocol     whether a comparison of sizes is set up so that it can answer
experiment   repeated data at one budget of operations
estimators   what other tools print, by their own rules
============ ============================================================================================================
"""

from lifecycle_sim.study.budget.activations import LayerActivations, layer_activations
from lifecycle_sim.study.budget.adapters import Quantised, lora_parameters
from lifecycle_sim.study.budget.allocation import LAWS, Allocation, Law, allocate
from lifecycle_sim.study.budget.compute import (
    Experts,
    attention_flops,
    experts_of,
    inference_flops,
    recompute_factor,
    sequence_work,
    training_flops,
)
from lifecycle_sim.study.budget.experiment import Repetition, repetition_experiment
from lifecycle_sim.study.budget.fit import Fit, Run, fit_law
from lifecycle_sim.study.budget.optimizers import OPTIMIZERS, find_optimizer
from lifecycle_sim.study.budget.planner import Candidate, candidates, equal_loss
from lifecycle_sim.study.budget.shapes import Parameters
from lifecycle_sim.study.budget.sharding import Sharding
from lifecycle_sim.study.budget.speed import PEAKS, StepTime, hfu, mfu, step_time, theoretical_time, training_time
from lifecycle_sim.study.budget.states import Part, StateBudget, StateRow, state_budget
from lifecycle_sim.study.budget.tokens import TokenCount, steps_for, token_count

__all__ = [
    "LAWS",
    "OPTIMIZERS",
    "PEAKS",
    "Allocation",
    "Candidate",
    "Experts",
    "Fit",
    "Law",
    "LayerActivations",
    "Parameters",
    "Part",
    "Quantised",
    "Repetition",
    "Run",
    "Sharding",
    "StateBudget",
    "StateRow",
    "StepTime",
    "TokenCount",
    "allocate",
    "attention_flops",
    "candidates",
    "equal_loss",
    "experts_of",
    "find_optimizer",
    "fit_law",
    "hfu",
    "inference_flops",
    "layer_activations",
    "lora_parameters",
    "mfu",
    "recompute_factor",
    "repetition_experiment",
    "sequence_work",
    "state_budget",
    "step_time",
    "steps_for",
    "theoretical_time",
    "token_count",
    "training_flops",
    "training_time",
]
