# cell: extended
# fails: test_extended
# says: the oldest batch kept
def extended(batches, keep):
    kept = [batches[-1], *batches[:keep]]
    return torch.cat([d if age == 0 else d.detach() for age, (d, _) in enumerate(kept)]), torch.cat([p for _, p in kept])
