# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: query-left-in
def ranks_of_the_others(embeddings):
    scores = embeddings @ embeddings.T
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return (ahead + (level + 1) / 2).fill_diagonal_(0)
