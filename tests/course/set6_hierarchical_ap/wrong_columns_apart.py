# cell: level_sizes
# fails: test_level_sizes
# says: each column on its own
def level_sizes(labels, query):
    same = labels == labels[query]
    same[query] = False
    return same.sum(0).tolist()
