# cell: steepest_needed
# fails: test_steepest_needed
# says: an empty level
def steepest_needed(sizes):
    pairs = [(level, a, b) for level, (a, b) in enumerate(zip(sizes, sizes[1:]), start=1) if a and b]
    return max([0., *(math.log(b / a) / math.log((level + 1) / level) for level, a, b in pairs)])
