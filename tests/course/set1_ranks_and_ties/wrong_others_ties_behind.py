# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: ties-behind
def ranks_of_the_others(embeddings):
    scores = (embeddings @ embeddings.T).fill_diagonal_(-torch.inf)
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return (ahead + 1.0).fill_diagonal_(0)
