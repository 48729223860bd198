# cell: recall_cost
# fails: test_recall_cost
# says: margin-sign
def recall_cost(distances, relevance, margin):
    shifted = distances + torch.where(relevance, -margin / 2, margin / 2)
    ahead = (shifted[:, None, :] < shifted[:, :, None]) & ~relevance[:, None, :]
    per_query = (ahead.sum(-1).to(distances.dtype).sqrt() * relevance).sum(1) / relevance.sum(1)
    return per_query[relevance.any(1)].mean()
