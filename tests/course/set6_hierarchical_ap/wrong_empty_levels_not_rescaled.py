# cell: worths
# fails: test_worths
# says: law 2
def worths(sizes):
    worth, total = [], 0.
    for level in range(len(sizes)):
        total += 1 / len(sizes) / max(sum(sizes[level:]), 1)
        worth.append(total)
    return worth
