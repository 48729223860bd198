"Several processes from one program: what the first says comes back, and a failure is named."

import pytest

from smoothap_nb.train.processes import run_in_processes


def test_the_first_process_speaks():
    program = "import sys; print('rank', sys.argv[1], 'of', sys.argv[2], sys.argv[3].endswith('meeting'))"
    assert run_in_processes(program, 2) == "rank 0 of 2 True"


def test_a_failure_is_named():
    with pytest.raises(RuntimeError, match="(?s)process 1 of 2 ended with 1: .*ZeroDivisionError"):
        run_in_processes("import sys; 1 // (1 - int(sys.argv[1]))", 2)
    with pytest.raises(ValueError, match="world"):
        run_in_processes("", 0)
