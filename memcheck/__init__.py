"""Runs every kernel of the OpenCL device under a memory checker.

Oclgrind (``pip install '.[oclgrind]'``) is an OpenCL device that interprets kernels and logs violations: out-of-bounds
accesses, data races, and barriers that not all work items of a group reach. Here, each op with kernels is run on it
with small arrays of several dtypes and layouts, with the kernels for both kinds of devices.

Data flow::

    cases ──▶ case ────▶ runner ───▶ worker ─────▶ records ──▶ coverage ──▶ report
    the       dtypes     a process   layouts:      a line      kernels      tables,
    table     and        per         arrays;       per run     that no      exit status
              layouts    device kind     launches;                 case ran
                                     log: findings

`python -m memcheck --help` shows how to run it, and docs/howto-add-a-kernel.md how to add a case.
"""

import optdb  # noqa: F401  cures Theano's import, so it has to come before the first `import theano`
