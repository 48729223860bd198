# cell: toy_by_hand
# fails: test_toy_by_hand
# says: reversed
def toy_ranks():
    return [2, 5, 1, 4, 3]


def toy_value():
    return 3.82


def toy_extreme():
    return "smallest"
