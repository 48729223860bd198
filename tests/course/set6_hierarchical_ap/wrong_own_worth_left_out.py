# cell: h_rank_by_hand
# fails: test_h_rank_by_hand
# says: own worth left out
def h_ranks_by_hand():
    return [0, 1, 0, 5, 3]


def h_ap_by_hand():
    return Fraction(13, 25)
