# cell: six_scores
# fails: test_six_scores
# says: the best item is tied
def six_scores():
    return [0.9, 0.9, 0.9, 0.5, 0.1, 0.1]
