"""Private paths are replaced by names in files that users publish."""

from __future__ import annotations

import getpass
import sys

import pytest

from optdb.cli.bug_report import without_private


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """Pretend that a user with a home folder and an environment works in a project's folder."""
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("PWD", "/data/secret project")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(sys, "prefix", "/data/secret project/venv")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("/home/ada/.theano, cpu-ada, /home/ada", "~/.theano, cpu-ada, ~"),
        ("/data/secret project/venv/bin/python", "$VENV/bin/python"),
        ("    /data/secret project/report.html", "    $PWD/report.html"),
        ("/home/adam/x, /home/ada.", "$FOLDER1, ~."),
        ("/srv/a, /srv/a/b and /srv/c", "$FOLDER1, $FOLDER1/b and $FOLDER2"),
        ("-L/srv/lib -Wl,-rpath,/srv/lib (/srv/lib)", "-L$FOLDER1 -Wl,-rpath,$FOLDER1 ($FOLDER1)"),
        ("PYTHONPATH=/srv/my lib:/srv/other", "PYTHONPATH=$FOLDER1:$FOLDER2"),
        ("X=f=/srv/my code,c=\n    /srv/my code/d", "X=f=$FOLDER1,c=\n    $FOLDER1/d"),
        ("/tmp/ada/x, /usr/local/lib, /opt/rocm/x.", "/tmp/USER/x, /usr/local/lib, /opt/rocm/x."),
        ("n/a, https://example.org/srv/x, logp/dlogp", "n/a, https://example.org/srv/x, logp/dlogp"),
    ],
)
def test_folders_of_users_and_projects_get_names(text, published):
    assert without_private(text) == published


def test_the_root_is_no_home(monkeypatch):
    monkeypatch.setenv("HOME", "/")
    assert without_private("/usr/x, /srv/y") == "/usr/x, $FOLDER1"


def test_a_user_without_a_name(monkeypatch):
    def nobody():
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert without_private("/tmp/ada") == "/tmp/ada"
