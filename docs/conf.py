"""Settings of the documentation's site: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import optdb  # noqa: E402  before anything imports Theano

project = "optdb"
author = "The optdb developers"
copyright = f"2026, {author}"
version = release = optdb.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",  # has the role below
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "optdb_reference",
]
exclude_patterns = ["_build", "_ext"]
root_doc = "index"

# Names in single backticks are links where there is something of that name, and code elsewhere.
default_role = "autolink"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_excludepatterns = ["_build"]
nb_merge_streams = True

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# A parameter a line where a signature does not fit the page.
maximum_signature_line_length = 80
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"optdb {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}

linkcheck_anchors = False
