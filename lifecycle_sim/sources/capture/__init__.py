"""Captures steps of PyTorch models without a device, and tells what CUDA would allocate.

A capture runs the user's own functions on fake tensors, in a process of its own, with CUDA's semantics installed, and follows every storage
from its allocation to its death. torch is imported in that process only.

============== =========================================================================================================
launch         ``capture`` and ``capture_file``: the way in, and the process of its own
plan           what to capture: functions and settings, from Python or from a file
perform        the capture itself, step by step
variant        what may be changed in a program before it is captured; ``changing`` does it
building       the model on the meta device, then with fake tensors
checkpointing  torch's checkpoint around modules that a plan names
semantics      CUDA's operators, autocast, optimizers; with ``attention`` and ``autocast``
tracker        the dispatch mode that sees every operator, on fake and on real tensors
identity       storages: first seen, resized, died
places         phases, modules and steps
corrections    what autograd does differently while a mode is on
answers        what is assumed where only values could tell
terms          what kernels take for themselves; with ``reduction`` and the card's ``profiles``
ledger         the record that all of this fills
assemble       the Trace that is made of it
recording      ``record``: the same for the steps that a program really makes; with ``following`` and ``anchoring``
process        real steps on the CPU, measured, for sweeps; with ``running``, and ``redirect`` for what names a card
parameters     ``params``: bytes by storage and by name; with ``table``, and ``counting`` for files
============== =========================================================================================================
"""

from lifecycle_sim.sources.capture.counting import params_file
from lifecycle_sim.sources.capture.launch import capture, capture_file
from lifecycle_sim.sources.capture.plan import Recomputed
from lifecycle_sim.sources.capture.profiles import PROFILES, DeviceProfile, find_profile
from lifecycle_sim.sources.capture.record import Capture, OperatorRow, ParameterRow, Term, TermUse
from lifecycle_sim.sources.capture.recording import Recording, params, record
from lifecycle_sim.sources.capture.table import ParameterTable, StorageRow
from lifecycle_sim.sources.capture.variant import OPTIMIZERS, Variant

__all__ = [
    "OPTIMIZERS",
    "PROFILES",
    "Capture",
    "DeviceProfile",
    "OperatorRow",
    "ParameterRow",
    "ParameterTable",
    "Recomputed",
    "Recording",
    "StorageRow",
    "Term",
    "TermUse",
    "Variant",
    "capture",
    "capture_file",
    "find_profile",
    "params",
    "params_file",
    "record",
]
