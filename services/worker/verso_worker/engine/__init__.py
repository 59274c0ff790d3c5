"""The engine: a process that holds the ONNX sessions and answers over a socket.

    operations       the wire protocol: handlers, and the client that the worker calls
    head_operations  the wire protocol of heads
    loading          from an artifact to a service that has passed its golden samples
    service          the model as one object, for any number of threads
    batching         which of the waiting texts run together
    lanes            the threads that run batches, and what they count
    sessions         ONNX Runtime sessions from verified bytes
    encoder          texts to vectors, in float32 or float16
    decoder          the decoder's graphs: whole records at once, or token by token with a cache
    vocabulary       the decoder's tokenizer, lossless
    coding           texts and vectors to payloads of the neural codec
    reading          payloads and vectors back to texts
    guessing         vectors alone to likely texts
    heads            loaded heads: golden samples, batches, classes, scores and answers
    weights          the encoder's weights, shared by all heads that read tokens
    windows          texts, pairs and long contexts as token rows, and the best spans of contexts

It is a process of its own because ONNX Runtime does not return memory when a session is replaced,
because a crash in native code must cost no job, and because the batcher would otherwise compete
with the stores and the ledger for the interpreter lock.
"""
