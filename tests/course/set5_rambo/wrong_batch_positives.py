# cell: recall_cost
# fails: test_recall_cost
# says: batch-positives
def recall_cost(distances, relevance, margin):
    shifted = distances + torch.where(relevance, margin / 2, -margin / 2)
    ahead = (shifted[:, None, :] < shifted[:, :, None]) & ~relevance[:, None, :]
    return (ahead.sum(-1).to(distances.dtype).sqrt() * relevance).sum() / relevance.sum()
