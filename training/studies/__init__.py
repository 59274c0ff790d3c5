"""Research on Verso: heads on public data, decoders compared, benches that are answered.

The package is not part of the wheel. It imports the product; the product never imports it.
"""
