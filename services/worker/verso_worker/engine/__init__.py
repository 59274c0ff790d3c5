"""The engine: a process of its own that holds the ONNX sessions and answers over a socket.

    operations  the wire protocol: handlers, and the client that the worker calls
    loading     from an artifact to a service that has passed its golden samples
    service     the model as one object, for any number of threads
    batching    which of the waiting texts run together
    lanes       the threads that run batches
    sessions    ONNX Runtime sessions from verified bytes
    encoder     texts to vectors
    precision   the encoder's graph in float16
    decoder     the decoder's graphs: whole records at once, or token by token with a cache
    vocabulary  the decoder's tokenizer, lossless
    coding      texts and vectors to payloads of the neural codec
    checking    payloads against the texts they are believed to give
    reading     payloads and vectors back to texts
    guessing    vectors alone to likely texts
    probing     texts against what the decoder expects of their vectors
    heads       loaded heads: golden samples, batches, classes, scores and answers
    weights     the encoder's weights, shared by all heads that read tokens
    windows     texts, pairs and long contexts as token rows
    outputs     what heads give
    spans       the best answers among start and end logits
    head_operations  the wire protocol of heads

It has a process of its own because ONNX Runtime does not give memory back when a session is
replaced, because a crash in native code must cost no job, and because the batcher would otherwise
compete with the stores and the ledger for the interpreter lock.
"""
