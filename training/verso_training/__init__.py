"""Training of the Verso decoder: data, model, run, export, publication.

The package never runs in production. It turns public text and a frozen sentence encoder into the
artifact folder that a worker loads: ONNX graphs, tokenizers, tables, golden samples, a manifest.
"""
