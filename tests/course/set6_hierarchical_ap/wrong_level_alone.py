# cell: worths
# fails: test_worths
# says: lets a crowded level drown
def worths(sizes):
    total = sum(n * level for level, n in enumerate(sizes, start=1))
    return [level / total for level in range(1, len(sizes) + 1)]
