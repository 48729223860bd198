# cell: largest_tau
# fails: test_largest_tau
# says: THE FIRST THAT FITS
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    return next((tau for tau in taus if (smooth_ap(scores[valid], relevance[valid], tau) - exact).abs().max() <= limit), None)
