# cell: weights
# fails: test_weights
# says: THE LESSON'S OBJECTIVE
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], ((R - A) / R**2)[:, None], (-A / R**2)[:, None]) / len(A)
    own = torch.nonzero(relevance)[:, 0]
    return table.index_put((torch.arange(len(own)), own), torch.zeros((), dtype=table.dtype))
