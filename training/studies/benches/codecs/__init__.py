"""What a record takes: codecs, dictionaries, decoders and their margins."""
