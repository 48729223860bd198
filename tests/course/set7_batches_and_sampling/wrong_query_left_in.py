# cell: balanced_map
# fails: test_balanced_map
# says: query-left-in
def balanced_map(embeddings, labels):
    from smoothap_nb import average_precision

    N = len(labels)
    ap = average_precision(embeddings @ embeddings.T, labels[:, None] == labels)
    return float(torch.stack([ap[labels == c].mean() for c in labels.unique() if (labels == c).sum() > 1]).mean())
