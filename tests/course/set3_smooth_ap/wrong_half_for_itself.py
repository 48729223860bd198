# cell: soft_places
# fails: test_soft_places
# says: HALF FOR ITSELF
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None] - delta) / tau)
    return 0.5 + steps.sum(2)
