"Something for `peak_memory` to watch."

import numpy


def prepare(megabytes: int):
    return lambda: numpy.ones(megabytes << 17).sum()
