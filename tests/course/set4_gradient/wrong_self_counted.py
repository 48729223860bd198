# cell: soft_counts
# fails: test_soft_counts
# says: self-counted
def soft_counts(scores, relevance, tau):
    steps = 0.5 + torch.atan((scores[None, :] - scores[relevance][:, None]) / tau) / math.pi
    return 1 + steps[:, relevance].sum(1), 1 + steps.sum(1)
