# cell: choose_lambda
# fails: test_choose_lambda
# says: lambda-scale
def first_lambda(distances, g):
    behind, gain = distances[None, :] - distances[:, None], g[None, :] - g[:, None]
    possible = (behind > 0) & (gain > 0)
    return float((behind / gain)[possible].min()) if possible.any() else math.inf


def to_percentiles(lam, n):
    return lam * (n - 1)


def choose_lambda(distances, g, share, grid):
    for lam in grid:
        if (nearest_ranks(distances - lam * g) != nearest_ranks(distances)).double().mean() >= share:
            return lam
    return None
