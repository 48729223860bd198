# cell: toy_by_hand
# fails: test_toy_by_hand
# says: argsort-once
def toy_ranks():
    return [2, 4, 5, 1, 3]


def toy_value():
    return 5.96


def toy_extreme():
    return "largest"
