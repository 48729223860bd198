# cell: toy_by_hand
# fails: test_toy_by_hand
# says: the answer for scores
def toy_ranks():
    return [4, 1, 5, 2, 3]


def toy_value():
    return 5.96


def toy_extreme():
    return "smallest"
