# cell: choose_lambda
# fails: test_choose_lambda
# says: only items that gain
def first_lambda(distances, g):
    found = [(distances[j] - distances[i]) / g[j] for i in range(len(g)) for j in range(len(g)) if distances[j] > distances[i] and g[j] > 0 and g[i] == 0]
    return float(min(found)) if found else math.inf


def to_percentiles(lam, n):
    return lam / (n - 1)


def choose_lambda(distances, g, share, grid):
    return 1
