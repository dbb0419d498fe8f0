"""Files and their contents, opened as data: arrays, headers, documents, archives, and the hub."""
