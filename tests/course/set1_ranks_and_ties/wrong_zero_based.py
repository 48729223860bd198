# cell: rank_from_last
# fails: test_rank_from_last
# says: zero-based
def rank_from_last(scores):
    return [1 + sum(other < score for other in scores) for score in scores]
