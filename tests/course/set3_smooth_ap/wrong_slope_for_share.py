# cell: reach
# fails: test_reach
# says: THE LESSON'S BOUND
def reach(tau, share):
    return 2 * tau * math.acosh(1 / (2 * math.sqrt(share * tau)))
