# cell: two_temperatures
# fails: test_two_temperatures
# says: the gradient is NaN
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    return ((among_positives / (1 + steps.sum(2)) * relevance).sum(1) / relevance.sum(1)).nanmean()
