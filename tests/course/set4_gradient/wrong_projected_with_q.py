# cell: through_the_length
# fails: test_through_the_length
# says: PROJECTED WITH q
def through_the_length(u, g, rho):
    n = u / u.norm()
    return rho / u.norm() * (g - rho * n * (rho * n @ g))
