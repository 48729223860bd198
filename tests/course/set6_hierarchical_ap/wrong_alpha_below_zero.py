# cell: steepest_needed
# fails: test_steepest_needed
# says: an alpha below 0
def steepest_needed(sizes):
    occupied = [(level, size) for level, size in enumerate(sizes, start=1) if size]
    return max(math.log(b / a) / math.log(fine / coarse) for (coarse, a), (fine, b) in zip(occupied, occupied[1:]))
