"""Runs the program in README.md as it stands there, and checks what it prints."""
import contextlib
import io
import re
import sys
from pathlib import Path

program = re.search(r"```python\n(.*?)```", Path(sys.argv[1]).read_text(), re.DOTALL)
assert program is not None, "README.md has no program"
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    exec(compile(program[1], sys.argv[1], "exec"), {})
print(printed.getvalue(), end="")
sys.exit(0 if printed.getvalue() == "2 of 2 blocks came back: ab\n" else 1)
