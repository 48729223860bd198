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


GATHER = """
import datetime, sys
import torch, torch.distributed as dist
from smoothap_nb import gather_rows

torch.set_num_threads(1)
rank, world = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=world,
                        timeout=datetime.timedelta(seconds=60))
for counts in ([3, 5], [0, 2], [4, 4]):
    whole = torch.arange(3.0 * sum(counts)).reshape(-1, 3)
    weights = torch.arange(1.0, 1 + sum(counts))[:, None]
    for sizes in (None, counts):
        rows = whole.split(counts)[rank].clone().requires_grad_()
        found = gather_rows(rows, sizes)
        assert torch.equal(found, whole), (rank, counts, sizes, found)
        (found * weights).sum().backward()  # the same loss in both processes: summed, twice its gradient
        assert torch.equal(rows.grad, 2 * weights.split(counts)[rank].expand(-1, 3)), (rank, counts, sizes, rows.grad)
try:
    gather_rows(rows, [1, 7])
except ValueError as error:
    print(error)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_unequal_rows_are_gathered_with_and_without_sizes():
    "Without `sizes` the processes ask each other first: unequal shares would abort them deep inside the exchange."
    said = run_in_processes(GATHER, 2, timeout=120)
    assert said == "sizes [1, 7] do not fit 2 processes, of which number 0 holds 4 rows"
