# cell: beaten_share
# fails: test_beaten_share
# says: reversed
def beaten_share(scores):
    return scores.argsort(dim=1, descending=True).argsort(dim=1) / (scores.shape[1] - 1)
