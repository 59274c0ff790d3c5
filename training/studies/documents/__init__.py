"""A classifier of documents: the vectors of all chunks, the words' terms, and both together.

For a document with unit vectors v_1..v_K of its chunks, and terms t with weights w_t (BM25's,
summed over the chunks, see ``verso_core.heads``), and a source s of labels:

    a_k = softmax_k(q_s' v_k sqrt(D))                    attention over chunks, q_s learned
    u   = sqrt(D) (v_1, v_K, sum_k a_k v_k)              beginning, end, and what q_s looks for;
                                                         or sqrt(D) v_1 alone
    x_t = log(1 + w_t) idf_st, then x / |x|              TF-IDF
    z_s = W_2 gelu(W_1 u + b_1) + b_2,   y_s = T' x + b  one softmax each, over the source's labels

A term's row of T is its id modulo the number of buckets; it belongs to the most frequent such id of
the training rows, and other ids have no weight. Nor have terms that only one training row has: an
address or a number tells nothing of other rows, and its large idf would take all of the norm.

The probability of a label c of source s is that of the source times that of the label in it (a
softmax of two levels, Goodman 2001, section 3), where both readers are mixed by weights that
held-out rows choose:

    log p(c) = log p(s) + log softmax_c(alpha_s log softmax(z_s) + beta_s log softmax(y_s))

A row's loss is that of its own source: one source learns nothing from rows of another, and a shift
of one moves no label of another. Labels without a slash are of one source.

Fitting, for each source by itself:

1. the terms' layer, then the vectors' layers, by full-batch L-BFGS; validation rows choose penalty,
   class weights, width and u by the mean of accuracy and macro-F1, and end the training;
2. alpha and beta by the validation rows' likelihood;
3. the source's own layer on the training rows of all sources.
"""
