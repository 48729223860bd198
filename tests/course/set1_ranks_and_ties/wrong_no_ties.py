# cell: six_scores
# fails: test_six_scores
# says: NO TIES AT ALL
def six_scores():
    return [0.9, 0.8, 0.5, 0.4, 0.2, 0.1]
