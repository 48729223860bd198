# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: THE QUERY LEFT IN, and ranked
def ranks_of_the_others(embeddings):
    scores = embeddings @ embeddings.T
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return ahead + (level + 1) / 2
