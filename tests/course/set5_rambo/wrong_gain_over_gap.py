# cell: choose_lambda
# fails: test_choose_lambda
# says: gain over gap
def first_lambda(distances, g):
    behind, gain = distances[None, :] - distances[:, None], g[None, :] - g[:, None]
    possible = (behind > 0) & (gain > 0)
    return float(1 / (behind / gain)[possible].min())


def to_percentiles(lam, n):
    return lam / (n - 1)


def choose_lambda(distances, g, share, grid):
    return 1
