"""Multi-task minBERT: strategies for pairs, round robin, references, time and memory."""
