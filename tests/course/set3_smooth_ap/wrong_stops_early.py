# cell: largest_tau
# fails: test_largest_tau
# says: STOPPED AT THE FIRST THAT FAILS
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    best = None
    for tau in sorted(taus):
        if (smooth_ap(scores[valid], relevance[valid], tau) - exact).abs().max() > limit:
            break
        best = tau
    return best
