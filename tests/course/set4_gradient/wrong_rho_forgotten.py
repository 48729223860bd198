# cell: through_the_length
# fails: test_through_the_length
# says: RHO FORGOTTEN
def through_the_length(u, g, rho):
    n = u / u.norm()
    return (g - n * (n @ g)) / u.norm()
