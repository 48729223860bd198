# cell: weights
# fails: test_weights
# says: THE GRADIENT OF -J
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], (1 / R - 1 / A)[:, None], (1 / R)[:, None]) / len(A)
    own = torch.nonzero(relevance)[:, 0]
    return table.index_put((torch.arange(len(own)), own), torch.zeros((), dtype=table.dtype))
