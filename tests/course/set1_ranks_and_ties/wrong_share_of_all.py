# cell: beaten_share
# fails: test_beaten_share
# says: DIVIDED BY G
def beaten_share(scores):
    return scores.argsort(dim=1).argsort(dim=1) / scores.shape[1]
