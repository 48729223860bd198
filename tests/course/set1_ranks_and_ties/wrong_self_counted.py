# cell: cautious_ranks
# fails: test_cautious_ranks
# says: self-counted
def cautious_ranks(scores, relevance):
    gaps = scores[None, :] - scores[:, None]
    return 1 + ((gaps > 0) | ((gaps == 0) & ~relevance[None, :])).sum(1)
