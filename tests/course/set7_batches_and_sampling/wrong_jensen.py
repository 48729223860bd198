# cell: flattery_by_hand
# fails: test_flattery_by_hand
# says: the AP of the expected place
def ap_of_the_whole():
    return Fraction(1, 3)


def ap_of_the_batch():
    return Fraction(1, 2)
