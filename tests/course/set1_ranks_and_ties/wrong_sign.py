# cell: table_of_distances
# fails: test_table_of_distances
# says: sign
def table_of_distances(distances):
    return distances[None, :] - distances[:, None]
