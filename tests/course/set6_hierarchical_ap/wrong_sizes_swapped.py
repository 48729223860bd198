# cell: steepest_needed
# fails: test_steepest_needed
# says: the two sizes swapped
def steepest_needed(sizes):
    occupied = [(level, size) for level, size in enumerate(sizes, start=1) if size]
    return max(math.log(a / b) / math.log(fine / coarse) for (coarse, a), (fine, b) in zip(occupied, occupied[1:]))
