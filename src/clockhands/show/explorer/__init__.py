"""The explorer: one page, one ES module, on which position codes can be turned."""
