# cell: soft_counts
# fails: test_soft_counts
# says: THE SIGMOID
def soft_counts(scores, relevance, tau):
    steps = torch.sigmoid((scores[None, :] - scores[relevance][:, None]) / tau)
    return 0.5 + steps[:, relevance].sum(1), 0.5 + steps.sum(1)
