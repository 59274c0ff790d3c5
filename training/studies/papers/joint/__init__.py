"""Encoder and decoder trained together. (Decodable Sentence-BERT, section 3 and table 3.)

The paper trains a Sentence-BERT with a decoder on top of its pooled vector by three losses at once:
masked tokens (eq. 13), the cosine of pairs (eq. 9) and self-generation. Ours starts from the
shipped encoder and decoder, and asks what the paper does not: how many bits of a text does a vector
carry that was trained to be decoded, while search with it stays as good?

    L = L_gen + w_sim L_sim + w_cos L_cos + w_mlm L_mlm

- ``arms``: what of the encoder is trained, and how the decoder reads the vector;
- ``losses``: similarity to the old space, vectors rounded as stored, with a gradient;
- ``examples``: questions with sentences, and pairs with scores, which keep the space what it is;
- ``run``: one training, by processor time, which goes on where it was stopped;
- ``measure``: bits with and without the vector, STS-B and a search;
- ``study``: the arms at an equal budget, and the page;
- ``artifact``: what a trained arm wins over another, and an artifact of it.
"""
