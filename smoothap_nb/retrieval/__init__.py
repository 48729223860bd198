"Retrieval: search by example, descriptors."
