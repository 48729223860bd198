"""A program in an interpreter that has imported torch and nothing else: forked from one that waits for programs, since
a test that asks what an import brings would spend three seconds on torch before its question.
"""

import atexit
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVER = """
import json, os, sys, traceback
import torch
while line := sys.stdin.readline():
    given = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, name in enumerate(given['files']):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    sys.argv, code = given['argv'], 0
    try:
        exec(compile(given['code'], '<string>', 'exec'), {'__name__': '__main__', '__builtins__': __builtins__})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str): print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)
"""


@cache
def _server() -> subprocess.Popen:
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=-1, stdout=-1, text=True, cwd=ROOT)
    atexit.register(server.kill)
    return server


def run_clean(code: str, argv: tuple[str, ...] = ("-c",)) -> subprocess.CompletedProcess:
    """What `python -c CODE` does from the root of the checkout, in a process of its own.

    Args:
        code: the program.
        argv: its `sys.argv`.
    """
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("in", "out", "err")]
        server.stdin.write(json.dumps({"code": code, "argv": argv, "files": files}) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        out, err = (Path(name).read_text() for name in files[1:])
    return subprocess.CompletedProcess(list(argv), status, out, err)
