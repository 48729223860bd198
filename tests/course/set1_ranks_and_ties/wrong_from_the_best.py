# cell: rank_from_last
# fails: test_rank_from_last
# says: reversed
def rank_from_last(scores):
    return [sum(other > score for other in scores) for score in scores]
