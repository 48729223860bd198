# cell: leading_step
# fails: test_leading_step
# says: tau-times
def leading_step(x, tau, delta):
    return torch.sigmoid((x - delta) * tau)
