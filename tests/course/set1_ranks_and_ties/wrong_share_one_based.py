# cell: beaten_share
# fails: test_beaten_share
# says: zero-based
def beaten_share(scores):
    return (1 + scores.argsort(dim=1).argsort(dim=1)) / (scores.shape[1] - 1)
