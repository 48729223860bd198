# cell: flattery_by_hand
# fails: test_flattery_by_hand
# says: as if they were equally likely
def ap_of_the_whole():
    return Fraction(1, 3)


def ap_of_the_batch():
    return (1 + Fraction(1, 2) + Fraction(1, 3)) / 3
