"""Classify texts and stored records, with a calibrated confidence.

A head that reads vectors classifies stored records from their vectors alone: nothing is decoded.

A head that reads documents is given the vectors of all chunks, and the words' terms where it reads
them: as a hybrid collection stores them, or else of the restored texts.

The **portion** of the request, or else of the head, says which chunks of a text are classified: the
first, the last, or all of them, whose logits are averaged. A text is cut, and its vectors are
rounded, as an int8 collection would store it, so that it gets the labels of its stored document. A
record that the request names is classified alone. Without a portion a head that reads documents
reads all chunks; for other heads a text, and a stored document likewise, is read from its start up
to the encoder's limit.
"""
