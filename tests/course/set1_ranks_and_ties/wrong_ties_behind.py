# cell: cautious_ranks
# fails: test_cautious_ranks
# says: ties-behind
def cautious_ranks(scores, relevance):
    return 1 + (scores[None, :] > scores[:, None]).sum(1)
