# cell: level_sizes
# fails: test_level_sizes
# says: the query in its own level
def level_sizes(labels, query):
    shared = (labels == labels[query]).long().cumprod(1).sum(1)
    return [int((shared == level).sum()) for level in range(1, labels.shape[1] + 1)]
