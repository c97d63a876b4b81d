"""Runs a Python program with the KVBM backend added to AIBrix's:

    python -m libkvbm.aibrix program.py [arguments]
    python -m libkvbm.aibrix -m module [arguments]

Only this process gets it. vLLM's own processes do not need it: they load it as a plug-in of vLLM.
"""
from __future__ import annotations

import os
import runpy
import sys

from . import install


def main(arguments: list[str]) -> int:
    module = arguments[:1] == ["-m"]
    program = arguments[1:] if module else arguments
    if not program:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    os.environ.setdefault("AIBRIX_KV_CACHE_OL_L2_CACHE_BACKEND", "KVBM")
    install()
    sys.argv = program
    if module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        # As the interpreter does it: a program finds the modules beside it.
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")
    return 0


sys.exit(main(sys.argv[1:]))
