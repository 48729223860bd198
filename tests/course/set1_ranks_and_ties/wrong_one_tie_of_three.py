# cell: six_scores
# fails: test_six_scores
# says: ONE TIE OF THREE
def six_scores():
    return [0.9, 0.5, 0.5, 0.5, 0.2, 0.1]
