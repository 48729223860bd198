# cell: weights
# fails: test_weights
# says: THE MEAN FORGOTTEN
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], (1 / A - 1 / R)[:, None], (-1 / R)[:, None])
    own = torch.nonzero(relevance)[:, 0]
    return table.index_put((torch.arange(len(own)), own), torch.zeros((), dtype=table.dtype))
