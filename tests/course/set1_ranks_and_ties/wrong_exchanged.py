# cell: cautious_ranks
# fails: test_cautious_ranks
# says: POSITIVES AND NEGATIVES EXCHANGED
def cautious_ranks(scores, relevance):
    gaps = scores[None, :] - scores[:, None]
    ahead = (gaps > 0) | ((gaps == 0) & relevance[None, :])
    return 1 + ahead.fill_diagonal_(False).sum(1)
