"""Rows of the papers that no other study has, each study a table of its own.

- ``precision``: what search and decoder lose by the precision of vectors;
- ``pooling``: mean, first and greatest state, before and after a short fine-tuning;
- ``saving``: the published formula of what is saved, beside real bytes, by a text's length;
- ``aggregation``: groups of like logs by plain vectors and by those that are decoded;
- ``classification``: fine-tuned encoder, stored vectors and words, and which are sure;
- ``sentiment``: two classes by an adapter and by all of the encoder;
- ``pair-strategies``: siamese, pooled and cross-attention models of pairs, fine-tuned;
- ``loaded``: memory and time of the heads, one loaded after the other;
- ``converged``: one encoder a task, trained until validation rows gain no more;
- ``round-robin``: SQuAD beside the three tasks of multi-task minBERT;
- ``spent``: time and memory of an epoch of minBERT's strategies;
- ``guesses``: greedy and beam search, and whether the model or the search errs;
- ``readers``: the six output layers of the thesis, side by side;
- ``students``: readers of half the layers, with a teacher and without;
- ``configurations``: such a student in the thesis' six settings of rate, batch and epochs;
- ``recurrent``: recurrent decoders with and without attention;
- ``combined``: the decoder's distribution as one more input of the mixture codec;
- ``formats``: what numbers, times and JSON cost decoder and mixture, and could at least;
- ``joint``: encoder and decoder trained together.

``approximate`` gives intervals to figures of minBERT's three tasks whose predictions were not kept.

Rows that are trained take minutes of a core; with ``--full`` as long as those of the papers, for a
GPU. All go on where they were stopped: what a part found is kept in the working folder.
"""
