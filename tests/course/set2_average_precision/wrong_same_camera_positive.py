# cell: other_cameras_map
# fails: test_other_cameras_map
# says: SAME CAMERA COUNTED AS POSITIVE
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision

    values = []
    for q in range(len(embeddings)):
        same_car, itself = labels == labels[q], torch.arange(len(labels)) == q
        keep, wanted = ~itself, same_car
        if wanted[keep].any():
            values.append(float(average_precision((embeddings[keep] @ embeddings[q])[None], wanted[keep][None]).nan_to_num(0)))
    return sum(values) / len(values)
