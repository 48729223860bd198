# cell: weights
# fails: test_weights
# says: positives-only
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], (1 / A)[:, None], (0 / R)[:, None]) / len(A)
    own = torch.nonzero(relevance)[:, 0]
    return table.index_put((torch.arange(len(own)), own), torch.zeros((), dtype=table.dtype))
