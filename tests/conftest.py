"""Fixtures for every test."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("lifecycle-sim", deadline=None)  # how long an example takes says more of the machine than of the code
settings.load_profile("lifecycle-sim")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings beside the checkout; tests that read it skip where it is not."""
    folder = Path(os.environ.get("LIFECYCLE_SIM_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("the recordings that this test reads (folder ../shared) are not on this machine")
    return folder
