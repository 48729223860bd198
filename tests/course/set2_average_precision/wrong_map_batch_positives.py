# cell: other_cameras_map
# fails: test_other_cameras_map
# says: batch-positives
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision

    total, positives = 0.0, 0
    for q in range(len(embeddings)):
        same_car = labels == labels[q]
        keep = ~(same_car & (cameras == cameras[q]))
        if same_car[keep].any():
            found = int(same_car[keep].sum())
            total += found * float(average_precision((embeddings[keep] @ embeddings[q])[None], same_car[keep][None]))
            positives += found
    return total / positives
