# cell: balanced_map
# fails: test_balanced_map
# says: the lone image of class 2 counted as 0
def balanced_map(embeddings, labels):
    from smoothap_nb import average_precision

    N = len(labels)
    others = ~torch.eye(N, dtype=torch.bool)
    scores, same = (embeddings @ embeddings.T)[others].view(N, N - 1), (labels[:, None] == labels)[others].view(N, N - 1)
    ap = average_precision(scores, same).nan_to_num(0)
    return float(torch.stack([ap[labels == c].mean() for c in labels.unique()]).mean())
