# cell: through_the_length
# fails: test_through_the_length
# says: THE PROJECTION FORGOTTEN
def through_the_length(u, g, rho):
    n = u / u.norm()
    return rho / u.norm() * g
