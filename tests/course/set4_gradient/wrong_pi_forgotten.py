# cell: step_slope
# fails: test_step_slope
# says: PI FORGOTTEN
def step_slope(x, tau):
    return 1 / (tau * (1 + (x / tau) ** 2))
