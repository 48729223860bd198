# cell: largest_tau
# fails: test_largest_tau
# says: THE ERROR WITHOUT ITS SIGN TAKEN OFF
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    return max((tau for tau in taus if (exact - smooth_ap(scores[valid], relevance[valid], tau)).max() <= limit), default=None)
