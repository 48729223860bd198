# cell: backward_rule
# fails: test_backward_rule
# says: no-perturbation
def backward_rule(distances, g, lam):
    return (nearest_ranks(distances) - nearest_ranks(distances - lam * 0 * g)) / lam
