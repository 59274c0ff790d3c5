"""What waits for a GPU, an entry of ``training/GPU_QUEUE.md`` each, as one command that runs alone.

``catalogue`` holds the entries and their steps, ``queue`` runs them and writes their figures.
"""
