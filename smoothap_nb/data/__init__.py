"Data: pictures, labels, batches."
