"""Files are written whole or not at all, and never over another."""

import os

import pytest

from lifecycle_sim.errors import LifecycleError, OutputExistsError
from lifecycle_sim.output.atomic import refuse_to_overwrite, write_atomically


def test_a_new_file_holds_the_bytes_and_nothing_else_is_left(tmp_path):
    write_atomically(tmp_path / "a.json", b"abc")
    assert (tmp_path / "a.json").read_bytes() == b"abc"
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_permissions_are_those_of_any_new_file(tmp_path):
    write_atomically(tmp_path / "a", b"")
    (tmp_path / "b").write_bytes(b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_an_existing_file_is_left_alone_without_force(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(OutputExistsError, match="exists already") as caught:
        write_atomically(tmp_path / "a", b"new")
    assert isinstance(caught.value, LifecycleError)
    assert isinstance(caught.value, FileExistsError)
    assert (tmp_path / "a").read_bytes() == b"old"
    write_atomically(tmp_path / "a", b"new", force=True)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("force", [False, True])
def test_a_failure_half_way_leaves_what_was_there(tmp_path, monkeypatch, force):
    def full(_):
        raise OSError(28, "No space left on device")

    if force:
        (tmp_path / "a").write_bytes(b"old")
    before = os.listdir(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "a", b"new", force=force)
    assert os.listdir(tmp_path) == before
    assert not force or (tmp_path / "a").read_bytes() == b"old"


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (tmp_path / "a").write_bytes(b"theirs"))
    with pytest.raises(OutputExistsError):
        write_atomically(tmp_path / "a", b"mine")
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["a"]


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", b"new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_devices_are_written_to_directly():
    write_atomically("/dev/null", b"abc")
    assert not os.path.isfile("/dev/null")


def test_folders_are_refused_before_any_work(tmp_path):
    with pytest.raises(OSError, match="is a folder"):
        refuse_to_overwrite(tmp_path, force=True)
    with pytest.raises(OSError, match="does not exist"):
        refuse_to_overwrite(tmp_path / "no" / "a", force=True)
