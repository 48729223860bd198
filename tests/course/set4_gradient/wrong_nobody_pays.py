# cell: push
# fails: test_push
# says: NOBODY PAYS
def push(w, relevance):
    own = torch.nonzero(relevance)[:, 0]
    return w.sum(0)
