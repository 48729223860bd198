# cell: two_rows
# fails: test_two_rows
# says: ORDER OF THE ANSWER
def two_rows():
    return [place in (2, 3) for place in range(1, 13)], [place in (1, 12) for place in range(1, 13)]
