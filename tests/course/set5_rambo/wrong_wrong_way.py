# cell: backward_rule
# fails: test_backward_rule
# says: wrong-way
def backward_rule(distances, g, lam):
    return (nearest_ranks(distances) - nearest_ranks(distances + lam * g)) / lam
