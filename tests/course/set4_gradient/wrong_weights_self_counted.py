# cell: weights
# fails: test_weights
# says: self-counted
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], (1 / A - 1 / R)[:, None], (-1 / R)[:, None]) / len(A)
    own = torch.nonzero(relevance)[:, 0]
    return table
