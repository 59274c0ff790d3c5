"""How good the heads are: public sets, baselines, and their tables in the docs."""
