# cell: step_slope
# fails: test_step_slope
# says: tau-forgotten
def step_slope(x, tau):
    return 1 / (math.pi * (1 + (x / tau) ** 2))
