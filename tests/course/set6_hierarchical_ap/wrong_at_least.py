# cell: level_sizes
# fails: test_level_sizes
# says: 'at least'
def level_sizes(labels, query):
    shared = (labels == labels[query]).long().cumprod(1).sum(1)
    shared[query] = 0
    return [int((shared >= level).sum()) for level in range(1, labels.shape[1] + 1)]
