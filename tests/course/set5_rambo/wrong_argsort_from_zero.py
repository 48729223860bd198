# cell: toy_by_hand
# fails: test_toy_by_hand
# says: ARGSORT ONCE, and from 0
def toy_ranks():
    return toy.argsort().tolist()


def toy_value():
    return 5.96


def toy_extreme():
    return "largest"
