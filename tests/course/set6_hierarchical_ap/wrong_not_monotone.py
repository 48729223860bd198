# cell: worths
# fails: test_worths
# says: relevance is not monotone
def worths(sizes):
    worth = [level / max(n, 1) for level, n in enumerate(sizes, start=1)]
    total = sum(n * w for n, w in zip(sizes, worth))
    return [w / total for w in worth]
