# cell: step_slope
# fails: test_step_slope
# says: THE SIGMOID'S SLOPE
def step_slope(x, tau):
    return torch.sigmoid(x / tau) * torch.sigmoid(-x / tau) / tau
