# cell: leading_step
# fails: test_leading_step
# says: THE LEAD OUTSIDE THE TEMPERATURE
def leading_step(x, tau, delta):
    return torch.sigmoid(x / tau - delta)
