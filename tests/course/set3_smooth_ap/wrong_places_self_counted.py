# cell: soft_places
# fails: test_soft_places
# says: self-counted
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None] - delta) / tau)
    return 1 + steps.sum(2)
