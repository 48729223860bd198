# cell: h_rank_by_hand
# fails: test_h_rank_by_hand
# says: max for min
def h_ranks_by_hand():
    return [1, 8, 0, 27, 15]


def h_ap_by_hand():
    return Fraction(13, 25)
