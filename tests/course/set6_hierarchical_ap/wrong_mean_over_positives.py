# cell: h_rank_by_hand
# fails: test_h_rank_by_hand
# says: the mean over the four positives
def h_ranks_by_hand():
    return [1, 5, 0, 14, 4]


def h_ap_by_hand():
    return (Fraction(1) + Fraction(5, 2) + Fraction(14, 4) + Fraction(4, 5)) / 4
