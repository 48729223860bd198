# cell: rank_from_last
# fails: test_rank_from_last
# says: argsort-once
def rank_from_last(scores):
    return sorted(range(len(scores)), key=scores.__getitem__)
