# cell: through_the_length
# fails: test_through_the_length
# says: THE LENGTH FORGOTTEN
def through_the_length(u, g, rho):
    n = u / u.norm()
    return rho * (g - n * (n @ g))
