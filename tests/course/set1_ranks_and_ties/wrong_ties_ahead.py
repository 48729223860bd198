# cell: cautious_ranks
# fails: test_cautious_ranks
# says: ties-ahead
def cautious_ranks(scores, relevance):
    return (scores[None, :] >= scores[:, None]).sum(1)
