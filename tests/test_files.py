"""Files that are either whole or absent."""

import os

import pytest

from tether.files import atomic_file


def test_the_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "scores.npz"
    with atomic_file(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_raises_leaves_the_old_content_and_no_other_file(tmp_path):
    path = tmp_path / "scores.npz"
    path.write_bytes(b"old")

    def stopped():
        with atomic_file(path) as file:
            file.write(b"part")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_gets_the_permissions_of_any_new_file(tmp_path):
    with atomic_file(tmp_path / "a"):
        pass
    (tmp_path / "b").touch()
    assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


def test_a_missing_folder_is_an_error_of_the_caller(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "no" / "a"):
        pass
